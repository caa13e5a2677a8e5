"""A hand-made run and its diagnosis, and a way to drive the report: what is on the screen, as text."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from textual.pilot import Pilot

from ppo_doctor.cli.interactive.app import ReportApp
from ppo_doctor.cli.interactive.subjects import Case
from ppo_doctor.model.diagnosis import Diagnosis
from ppo_doctor.model.run import Axis, Note, Run, Series, Setting, SourceRef, SourceSummary
from ppo_doctor.model.words import ConfigValue
from ppo_doctor.report import RenderOptions
from tests.report import cases

RECORDS = 412
ONSET = 12
#: Seconds after which a report that hangs fails its test.
LONGEST = 90
SIZES = ((80, 24), (120, 40), (200, 60))


def series(name: str, raw: str, values: Sequence[float], unit: str = "", path: str = cases.LOG) -> Series:
    count = len(values)
    axis = Axis(path=path, steps=np.arange(1, count + 1), lines=np.arange(1, count + 1))
    return Series(name=name, raw=raw, axis=axis, values=np.asarray(values, dtype=np.float64), unit=unit)


def a_run(**more: Any) -> Run:
    """Return a run whose numbers agree with the hand-made diagnosis: rewards are flat from step 12 on."""
    steps = np.arange(RECORDS)
    before = steps < ONSET
    values: dict[str, Any] = {
        "id": cases.LOG,
        "framework": "trl-grpo",
        "algorithm": "grpo",
        "sources": (SourceSummary(path=cases.LOG, container="jsonl", records=RECORDS, skipped=1),),
        "series": {
            s.name: s
            for s in (
                series("frac_reward_zero_std", "frac_reward_zero_std", np.where(before, 0.25, 1.0), "fraction"),
                series("loss", "loss", np.where(before, np.sin(steps), 0.0)),
                series("reward_std", "reward_std", np.where(before, 0.3, 0.0)),
                series("learning_rate", "learning_rate", np.linspace(1e-6, 1e-7, RECORDS)),
                series("approx_kl", "kl", np.where(steps % 50 == 49, np.nan, 1e-4 * (1 + np.cos(steps))), "nats"),
            )
        },
        "config": {
            "num_iterations": a_setting("num_iterations", 4),
            "clip_range": a_setting("epsilon", 0.2),
            "learning_rate": a_setting("learning_rate", 1e-6),
        },
        "config_raw": {"num_iterations": 4, "epsilon": 0.2, "learning_rate": 1e-6, "output_dir": "out"},
        "notes": (Note(text="truncated record skipped", source=SourceRef(path=cases.LOG, line=101)),),
    }
    return Run(**(values | more))


def a_setting(key: str, value: ConfigValue) -> Setting:
    return Setting(key=key, value=value, how="configured", source=SourceRef(path="runs/exp1/config.json", line=7))


@dataclass
class Judge:
    """Stands in for the engine: notes what was asked, and answers that all is well."""

    run: Run
    asked: list[dict[str, ConfigValue]] = field(default_factory=list)

    def __call__(self, overrides: Mapping[str, ConfigValue]) -> tuple[Run, Diagnosis]:
        self.asked.append(dict(overrides))
        return self.run, cases.healthy()


def a_case(run: Run | None = None, diagnosis: Diagnosis | None = None) -> Case:
    run = run or a_run()
    settable = ("K", "clip_range", "learning_rate", "num_iterations", "target_kl")
    return Case(run=run, diagnosis=diagnosis or cases.unhealthy(), rediagnose=Judge(run), settable=settable)


def several() -> list[Case]:
    """Return three runs with different verdicts."""
    healthy = replace(cases.healthy(), run=replace(cases.healthy().run, id="runs/exp2/run.jsonl"))
    unclear = replace(cases.inconclusive(), run=replace(cases.inconclusive().run, id="runs/exp3/run.jsonl"))
    return [a_case(), a_case(diagnosis=healthy), a_case(diagnosis=unclear)]


class Screen:
    """A report that is being driven."""

    def __init__(self, app: ReportApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.pilot.press(key)
            await self.settle()

    async def type(self, text: str) -> None:
        """Press one key after the other, as fast as somebody types; what they lead to is waited for once."""
        await self.pilot.press(*text)
        await self.settle()

    async def settle(self) -> None:
        """Wait until nothing is on its way any more: messages, workers and redrawing."""
        await self.pilot.pause()
        workers = [w for w in self.app.workers if w.group == "page" and not w.is_finished]
        if workers:  # an empty list would mean all of them, and one that asks something waits for an answer
            await self.app.workers.wait_for_complete(workers)
        await self.pilot.pause()

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        for _ in range(500):
            if condition():
                return
            await asyncio.sleep(0.01)
            await self.settle()
        raise AssertionError(f"did not come about:\n{self.text()}")

    def text(self) -> str:
        """Return what is on the screen, line by line."""
        return shown(self.app.export_screenshot())

    @property
    def page(self) -> str:
        return self.app.split.page.text()

    @property
    def rows(self) -> list[str]:
        return self.app.split.choices.keys


def drive(
    script: Callable[[Screen], Awaitable[None]],
    cases_: Sequence[Case] | None = None,
    *,
    size: tuple[int, int] = (80, 24),
    options: RenderOptions | None = None,
    **look: Any,
) -> ReportApp:
    """Run a report without a terminal, let a script drive it, and return it for inspection."""
    app = ReportApp(cases_ or [a_case()], options or RenderOptions(), **look)

    async def main() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            screen = Screen(app, pilot)
            await screen.settle()
            await script(screen)

    asyncio.run(asyncio.wait_for(main(), timeout=LONGEST))
    return app


_TEXT = re.compile(r'<text [^>]*?x="([\d.]+)" y="([\d.]+)" textLength="[\d.]+" clip-path[^>]*>(.*?)</text>')
#: Width of a character in Textual's pictures.
_CELL = 12.2


def shown(svg: str) -> str:
    """Return the text of a screenshot: pictures change with versions of Textual, what they say does not."""
    rows: dict[float, dict[int, str]] = {}
    for x, y, text in _TEXT.findall(svg):
        rows.setdefault(float(y), {})[round(float(x) / _CELL)] = html.unescape(text).replace("\xa0", " ")
    lines = []
    for y in sorted(rows):
        line = ""
        for column in sorted(rows[y]):
            line = line.ljust(column) + rows[y][column]
        lines.append(line.rstrip())
    return "\n".join(lines) + "\n"
