"""The scoreboard's pictures as SVG, without any library: text of the page's own colour on either ground."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

SIZE, EDGE, CELL, LABELS = 300, 46, 11, 230
_STYLE = (
    "<style>text{font:11px "
    "system-ui,sans-serif;fill:#24292f}.l{stroke:#8c959f;fill:none}.d{fill:#0969da}.x{fill:#cf222e}"
    ".g{fill:#8c959f}.o{fill:#8c959f;fill-opacity:.12}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.d{fill:#4493f8}"
    ".x{fill:#f85149}}</style>"
)


def _svg(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">'
        f"<title>{escape(title)}</title>{_STYLE}\n{body}\n</svg>\n"
    )


def _text(x: float, y: float, words: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def reliability_plot(bins: Sequence[tuple[int, float, float]]) -> str:
    """Return said probability against the share that was right, each tenth a disc whose area tells its logs."""
    width, height = SIZE + 2 * EDGE, SIZE + 1.6 * EDGE
    parts = [f'<path class="l" d="M{EDGE} 16h{SIZE}v{SIZE}h-{SIZE}z"/>']
    parts.append(f'<path class="l" stroke-dasharray="4 4" d="M{EDGE} {SIZE + 16}L{EDGE + SIZE} 16"/>')
    for tick in (0.0, 0.5, 1.0):
        parts.append(_text(EDGE + tick * SIZE, SIZE + 32, f"{tick:g}", "middle"))
        parts.append(_text(EDGE - 8, 20 + (1 - tick) * SIZE, f"{tick:g}", "end"))
    most = max((size for size, _, _ in bins), default=1)
    for size, said, was in bins:
        x, y = EDGE + said * SIZE, 16 + (1 - was) * SIZE
        radius = 3 + 13 * (size / most) ** 0.5
        told = f"{size} logs, mean probability {said:.2f}, {was:.2f} right"
        disc = f'<circle class="d" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill-opacity=".75">'
        parts.append(f"{disc}<title>{told}</title></circle>")
    parts.append(_text(EDGE + SIZE / 2, SIZE + 52, "probability of the first cause", "middle"))
    turned = f' transform="rotate(-90 14 {16 + SIZE / 2:g})"'
    parts.append(_text(14, 16 + SIZE / 2, "share that was right", "middle", turned))
    return _svg(width, height, "Calibration: stated probability against the share that was right", parts)


def confusion_plot(cells: Mapping[tuple[str, str], int]) -> str:
    """Return injected causes (rows) against causes named first (columns), the shade by share of the row."""
    rows = sorted({injected for injected, _ in cells})
    columns = [*rows, *sorted({said for _, said in cells} - set(rows))]
    of = {row: sum(n for (injected, _), n in cells.items() if injected == row) for row in rows}
    place = {name: LABELS + index * CELL for index, name in enumerate(columns)}
    top = 170
    parts = [f'<rect class="o" x="{LABELS}" y="{top}" width="{len(columns) * CELL}" height="{len(rows) * CELL}"/>']
    for index, row in enumerate(rows):
        y = top + index * CELL
        parts.append(_text(LABELS - 5, y + 9, f"{row} ({of[row]})", "end"))
        parts += [_cell(place[said], y, row, said, n, of[row]) for (i, said), n in sorted(cells.items()) if i == row]
    for name in columns:
        x = place[name] + 9
        parts.append(_text(x, top - 5, name, "start", f' transform="rotate(-70 {x} {top - 5})"'))
    width, height = LABELS + len(columns) * CELL + 70, top + len(rows) * CELL + 10
    return _svg(width, height, "Confusions: injected cause against the cause named first", parts)


def _cell(x: int, y: int, injected: str, said: str, logs: int, of: int) -> str:
    shade = 0.15 + 0.85 * logs / of
    box = f'<rect class="{"d" if injected == said else "x"}" x="{x}" y="{y}" width="{CELL - 1}" height="{CELL - 1}"'
    told = escape(f"{injected} → {said}: {logs} of {of}")
    return f'{box} fill-opacity="{shade:.2f}"><title>{told}</title></rect>'
