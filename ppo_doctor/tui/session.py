"""What the interactive report shows: the runs, which one, and what is supposed about it. Nothing here draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from ppo_doctor.report.phrases import relative
from ppo_doctor.report.summary import Summary, summarize

if TYPE_CHECKING:
    from ppo_doctor.model import ConfigValue, Diagnosis, Run, Setting

    Judged: TypeAlias = tuple[Run, Diagnosis]
    #: settings to suppose → the run under them, and its diagnosis
    Rediagnose: TypeAlias = Callable[[Mapping[str, ConfigValue]], Judged]

#: The settings that people wonder about first; K stands for the optimizer steps per rollout batch.
USUAL = ("K", "clip_range", "target_kl")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """One run as it was read and judged, and how to judge it under other settings."""

    run: Run
    diagnosis: Diagnosis
    rediagnose: Rediagnose
    #: names that can be supposed
    settable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """How much room there is, and how to fill it."""

    width: int
    height: int
    #: the full account of a cause rather than its main lines
    why: bool = False
    ascii: bool = False
    #: True where plots have no pane of their own and belong on the page
    alone: bool = True


@dataclass(slots=True, kw_only=True)
class Session:
    """The cases of a report, the chosen one, and the settings that are supposed about it."""

    cases: tuple[Case, ...]
    index: int = 0
    overrides: dict[str, ConfigValue] = field(default_factory=dict)
    why: bool = False
    _supposed: Judged | None = None
    _told: tuple[Diagnosis, Diagnosis, Summary] | None = None

    @property
    def case(self) -> Case:
        """Return the chosen case."""
        return self.cases[self.index]

    @property
    def run(self) -> Run:
        """Return the run that is shown: as read, or as supposed."""
        return self._supposed[0] if self._supposed else self.case.run

    @property
    def diagnosis(self) -> Diagnosis:
        """Return the diagnosis that is shown: as read, or as supposed."""
        return self._supposed[1] if self._supposed else self.case.diagnosis

    @property
    def told(self) -> Diagnosis:
        """Return the diagnosis that is shown with long paths shortened in its sentences."""
        return self._in_words()[1]

    @property
    def story(self) -> Summary:
        """Return the story of what is shown."""
        return self._in_words()[2]

    def _in_words(self) -> tuple[Diagnosis, Diagnosis, Summary]:
        if self._told is None or self._told[0] is not self.diagnosis:
            self._told = self.diagnosis, relative(self.diagnosis), summarize(self.diagnosis, self.run)
        return self._told

    def choose(self, index: int) -> None:
        """Show another run; what was supposed about this one is dropped."""
        self.index = index % len(self.cases)
        self.reset()

    def suppose(self, name: str, value: ConfigValue) -> None:
        """Judge the run as if a setting were another.

        Raises:
            DoctorError: no such setting or value; what was supposed before stays.
        """
        overrides = {**self.overrides, name: value}
        self._supposed = self.case.rediagnose(overrides)
        self.overrides = overrides

    def reset(self) -> None:
        """Go back to what was read."""
        self.overrides, self._supposed = {}, None


def shown_value(run: Run, name: str) -> str:
    """Return the value of a setting as people write it, an empty text where none is known."""
    setting: Setting | None = run.config.get(name)
    return "" if setting is None else str(setting.value)
