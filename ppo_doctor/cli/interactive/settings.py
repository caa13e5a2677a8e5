"""The fourth view: configuration and updates per batch, with origins and the effect of other values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.cli.interactive.subjects import (
    USUAL,
    Copy,
    Row,
    Subject,
    cut,
    heading,
    nothing,
    page_of,
    ranked,
    shown_value,
)
from ppo_doctor.model.evidence import number
from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import Span, columns
from ppo_doctor.report.phrases import VERDICT_STYLE, flowing, updates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.cli.interactive.subjects import Frame, Session
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.run import Fact, Run
    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.report.layout import Line, Page

#: Prefix of the rows of settings without a canonical name, so that they differ from those with one.
RAW = "as written: "
#: Causes named in a comparison.
MOST_CAUSES = 3
#: Checks with another outcome that are named.
MOST_TURNED = 8


class Settings(Subject):
    """The settings of a run; those that can be supposed are first."""

    title = "Config & K"

    def rows(self, query: str, width: int) -> list[Row]:
        """Return K, the usual settings, the other settings by name, then those without a canonical name."""
        names = [*self._settable(), *(f"{RAW}{key}" for key in self._unnamed())]
        return [Row(key=name, lines=(self._line(name, width),)) for name in ranked(query, names, str)]

    def page(self, key: str, frame: Frame) -> list[Line]:
        """Return the origin of a value, and what supposed values change."""
        if not key:
            return nothing(frame, "No setting fits.")
        page = page_of(frame)
        if key.startswith(RAW):
            _unnamed(page, key.removeprefix(RAW), self._session.run)
        elif key == "K":
            _updates(page, self._session)
        else:
            _setting(page, key, self._session)
        if not key.startswith(RAW):
            page.blank()
            page.add((Span("Enter", "bold"), " supposes another value and judges the run again; nothing is written."))
        if self._session.overrides:
            _compared(page, self._session)
        return page.lines

    def copies(self, key: str) -> Sequence[Copy]:
        """Return the setting as written, and as an option of the command line."""
        if not key:
            return []
        run = self._session.run
        name = key.removeprefix(RAW)
        value = str(run.config[name].value) if name in run.config else str(run.config_raw.get(name, ""))
        return [Copy(what="key", text=run.config[name].key if name in run.config else name)] + (
            [Copy(what="option", text=f"--set {name}={value}")] if name != "K" else []
        )

    def can_suppose(self, key: str) -> bool:
        """Return whether a row is a setting whose value can be supposed."""
        return key in self._session.case.settable

    def present(self, key: str) -> str:
        """Return the value that a row shows now."""
        run = self._session.run
        if key == "K":
            if "K" in self._session.overrides:
                return str(self._session.overrides["K"])
            effective = self._session.diagnosis.run.updates_per_batch.effective
            return "" if effective is None else f"{effective:g}"
        return shown_value(run, key)

    def _settable(self) -> list[str]:
        names = self._session.case.settable
        held = [name for name in names if name in self._session.run.config and name not in USUAL]
        return [*(name for name in USUAL if name in names), *held]

    def _unnamed(self) -> list[str]:
        run = self._session.run
        named = {setting.key for setting in run.config.values()} | set(run.config)
        return sorted(key for key in run.config_raw if key not in named)

    def _line(self, name: str, width: int) -> Line:
        run = self._session.run
        written = name.removeprefix(RAW)
        value = self.present(name) if name == written else str(run.config_raw.get(written, ""))
        changed = written in self._session.overrides and name == written
        size = max(width // 2, 10)
        head = cut(plain(written), size)
        style = "bold yellow" if changed else "dim" if name != written or self._is_default(written) else ""
        mark = Span("≈ " if changed else "  ", "bold yellow")
        words = cut(plain(value) or "unknown", max(width - size - 3, 4))
        return (
            mark,
            Span(head + " " * (size - columns(head)), "bold" if name in USUAL else style),
            Span(" " + words, style),
        )

    def _is_default(self, name: str) -> bool:
        setting = self._session.run.config.get(name)
        return setting is not None and setting.how == "default"


def _setting(page: Page, name: str, session: Session) -> None:
    setting = session.run.config.get(name)
    page.add((Span(plain(name), "bold"), f" = {plain(str(setting.value)) if setting else 'unknown'}"))
    if setting is None:
        page.add("Neither the log nor a configuration beside it has this setting.")
        return
    if name in session.overrides:
        page.add("Supposed by you.", 0, 2)
        return
    how = {"configured": "as configured", "default": "the framework's default, which is evidence and no proof"}
    words = how.get(setting.how, setting.how)
    page.add((f"{words}: ", Span(plain(setting.key), "cyan"), f" in {plain(str(setting.source))}"), 0, 2)


def _unnamed(page: Page, key: str, run: Run) -> None:
    page.add((Span(plain(key), "bold"), f" = {plain(str(run.config_raw.get(key)))}"))
    page.add("Read from the configuration; no rule knows this setting, so it changes nothing here.")


def _updates(page: Page, session: Session) -> None:
    """Add K with its origin: configured, observed, and which of them is used."""
    page.add((Span("K", "bold"), ", the optimizer steps per rollout batch"))
    k = session.shortened.run.updates_per_batch
    page.add(updates(k), 0, 2)
    known: Fact | None = session.run.facts.get("updates_configured")
    if "K" in session.overrides:
        page.add(f"Supposed by you: {session.overrides['K']}.", 0, 2)
    elif known is not None:
        value = number(float(str(known.value)))
        page.add(f"By the configuration {value}: {flowing(known.says)} ({plain(str(known.source))}).", 0, 2)
    if k.observed is not None:
        page.add(f"The log itself shows {k.observed:g}, which goes before any configured or supposed value.", 0, 2)
    page.add("With K = 1 the importance ratio is 1 by construction, and rules about the ratio do not apply.", 0, 0)


def _compared(page: Page, session: Session) -> None:
    heading(page, "Hypothetical", "x goes back to what was read")
    for name, value in session.overrides.items():
        page.add(
            (Span("≈ ", "bold yellow"), f"{plain(name)} = {plain(str(value))}, as read {_as_read(session, name)}"), 0, 2
        )
    page.blank()
    before, after = session.case.diagnosis, session.diagnosis
    for words, diagnosis in (("As read", before), ("If so", after)):
        page.add((Span(f"{words:8}", "bold"), Span(diagnosis.verdict.upper(), VERDICT_STYLE[diagnosis.verdict])))
        for confidence, name in _leading(diagnosis):
            page.add((f"{confidence}, ", Span(name, "cyan")), 2, 2)
    page.blank()
    turned = _turned(before, after)
    if not turned:
        page.add("No check comes out otherwise, so nothing changes.")
    for line in turned[:MOST_TURNED]:
        page.add(line, 0, 2)
    if len(turned) > MOST_TURNED:
        page.add(Span(f"… and {len(turned) - MOST_TURNED} more checks come out otherwise", "dim"))


def _turned(before: Diagnosis, after: Diagnosis) -> list[tuple[Span, ...]]:
    """Return the checks whose outcome differs, each with both outcomes."""
    was = {finding.rule: finding.status for finding in before.findings}
    changed = [f for f in after.findings if was.get(f.rule) != f.status]
    return [
        (Span(plain(f.rule), "cyan"), Span(f": {was.get(f.rule, 'not run')} → "), Span(f.status, "bold"))
        for f in changed
    ]


def _as_read(session: Session, name: str) -> ConfigValue:
    if name == "K":
        effective = session.case.diagnosis.run.updates_per_batch.effective
        return "unknown" if effective is None else f"{effective:g}"
    return plain(shown_value(session.case.run, name)) or "unknown"


def _leading(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    return [(str(c.confidence), plain(c.id)) for c in diagnosis.causes if c.leader][:MOST_CAUSES]
