"""How the report looks: dark or light, or in the terminal's own colours where it has sixteen, or none are wanted."""

from __future__ import annotations

from rich.terminal_theme import TerminalTheme
from textual.theme import Theme

#: Least columns → the class of a layout: below 100 the list gives way, from 150 on plots have a pane of their own.
BREAKPOINTS = [(0, "-narrow"), (100, "-medium"), (150, "-wide")]

#: The theme for terminals with a light background.
LIGHT = "textual-light"
THEME = Theme(
    name="ppo-doctor",
    primary="#5fa8d3",
    secondary="#62b6b7",
    warning="#e5c07b",
    error="#e06c75",
    success="#98c379",
    accent="#c678dd",
    foreground="#d7dae0",
    background="#14171c",
    surface="#14171c",
    panel="#1e232b",
    boost="#242a33",
    dark=True,
)
#: The sixteen colours that the words of reports are styled with, on the theme's background.
COLORS = TerminalTheme(
    (20, 23, 28),
    (215, 218, 224),
    [
        *((30, 35, 43), (224, 108, 117), (152, 195, 121), (229, 192, 123)),
        *((95, 168, 211), (198, 120, 221), (86, 182, 194), (200, 204, 212)),
    ],
    [
        *((110, 118, 130), (240, 130, 140), (170, 215, 140), (240, 205, 140)),
        *((120, 190, 230), (215, 150, 235), (110, 205, 215), (240, 242, 246)),
    ],
)
