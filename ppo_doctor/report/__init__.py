"""Reports print a `Diagnosis` and compute nothing; one module per format, imported on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from types import ModuleType

    from ppo_doctor.diagnosis.gate_result import GateResult
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.run import Run
    from ppo_doctor.report.json_report import Flow
    from ppo_doctor.report.patch import Patch
    from ppo_doctor.report.summary import Summary

#: format → "module:function". The function renders one run; a module without it renders a list of one. `render_many`
#: or `FLOW` renders several runs, `render_error` an error.
FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "text": "ppo_doctor.report.terminal:render",
        "json": "ppo_doctor.report.json_report:render",
        "svg": "ppo_doctor.report.terminal:svg",
        "html": "ppo_doctor.report.html:render",
        "markdown": "ppo_doctor.report.markdown:render",
        "sarif": "ppo_doctor.report.sarif:render",
        "junit": "ppo_doctor.report.junit:render",
        "github": "ppo_doctor.report.github:render",
    }
)

#: Formats whose report of several runs quotes their records, too.
DRAWN = ("html", "markdown", "github")
#: Formats whose report of several runs prints the summary of each.
SUMMARIZED = ("text",)


@frozen
class RenderOptions:
    """How much to say and how to print it.

    `color`, `width` and `ascii` of None follow the standard output: NO_COLOR, FORCE_COLOR and whether it is a
    terminal; COLUMNS and the terminal's columns; whether its encoding has the signs that we use.
    """

    #: print every cause's full account
    why: bool = False
    #: list clear and skipped checks, every note and every rival in full
    all: bool = False
    #: only the verdict, the cause, the first action and the exit code
    quiet: bool = False
    #: the severity from which the command fails; "" where nothing is to be said of its exit code
    fail_on: str = ""
    color: bool | None = None
    width: int | None = None
    ascii: bool | None = None
    #: run id → what the gate ruled; empty outside a gate
    gate_results: Mapping[str, GateResult] = field(default_factory=dict)
    #: run id → the changes of its configurations; empty if none were asked for
    patches: Mapping[str, Patch] = field(default_factory=dict)

    def gate_result(self, diagnosis: Diagnosis) -> GateResult | None:
        """Return the result of the gate for a run; None outside a gate."""
        return self.gate_results.get(diagnosis.run.id)


def render(diagnosis: Diagnosis, run: Run | None, options: RenderOptions, format: str = "text") -> str:
    """Return one diagnosis in a format of `FORMATS`, with a line end at its end.

    Raises:
        DoctorError: no such format.
    """
    module, function = _find(format)
    if not hasattr(module, function):
        return render_many([diagnosis], options, format, [run])
    return _text(getattr(module, function)(diagnosis, run, options))


def render_many(
    diagnoses: Sequence[Diagnosis],
    options: RenderOptions,
    format: str = "text",
    runs: Sequence[Run | None] = (),
    summaries: Sequence[Summary | None] = (),
) -> str:
    """Return the diagnoses of several runs in one report; `DRAWN` formats use `runs`, `SUMMARIZED` ones `summaries`.

    Raises:
        DoctorError: no such format, or one that holds a single run only.
    """
    module, function = _find(format)
    if function != "render":
        raise DoctorError(f"format '{format}' holds one run", hint="name one run", code=ExitCode.USAGE)
    if (flow := flow_of(format)) is not None:
        return flow.whole(diagnoses, options)
    extra: Any = [runs] if format in DRAWN else [summaries] if format in SUMMARIZED else []
    return _text(module.render_many(diagnoses, options, *extra))


def flow_of(format: str) -> Flow | None:
    """Return how a format writes several runs one by one; None for formats that need them all at once.

    Raises:
        DoctorError: no such format.
    """
    module, _ = _find(format)
    found: Flow | None = getattr(module, "FLOW", None)
    return found


def render_error(message: str, hint: str = "", code: int = ExitCode.NOTHING_TO_JUDGE, format: str = "text") -> str:
    """Return an error with what to do about it: an object for formats that have one, else plain text.

    Raises:
        DoctorError: no such format.
    """
    module, _ = _find(format)
    if hasattr(module, "render_error"):
        return _text(module.render_error(message, hint, int(code)))
    from ppo_doctor.report.escape import prose

    return "".join(f"{prose(line)}\n" for line in (message, hint) if line)


def _find(format: str) -> tuple[ModuleType, str]:
    if format not in FORMATS:
        raise DoctorError(f"no format '{format}'", hint=f"one of {', '.join(FORMATS)}", code=ExitCode.USAGE)
    module, _, function = FORMATS[format].partition(":")
    return import_module(module), function


def _text(value: Any) -> str:  # noqa: ANN401
    return str(value)
