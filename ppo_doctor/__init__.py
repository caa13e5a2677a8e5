"""ppo-doctor: find out what is wrong with a PPO run, on what evidence, and what to do first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

    from ppo_doctor.model.errors import DoctorError
    from ppo_doctor.model.request import Request
    from ppo_doctor.model.run import Run as ReadRun
    from ppo_doctor.readers.objects import Given
    from ppo_doctor.report.notebook import Diagnosis, Run

__version__ = "0.2.0"
__all__ = ["Diagnosis", "DoctorError", "Run", "__version__", "analyze", "fleet", "judge_batch", "load_run"]

#: Class → the module that it is imported from when somebody asks for it.
_CLASSES = {
    "Diagnosis": "ppo_doctor.report.notebook",
    "DoctorError": "ppo_doctor.model.errors",
    "Run": "ppo_doctor.report.notebook",
}


def __getattr__(name: str) -> object:
    """Import a class when it is asked for: `import ppo_doctor` imports nothing."""
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_CLASSES[name]), name)


def load_run(
    source: Given,
    *,
    settings: Mapping[str, object] | None = None,
    framework: str | None = None,
    aliases: Mapping[str, str] | None = None,
) -> Run:
    """Read one training run.

    `source` is a path or a URL, a DataFrame of pandas or polars, a dict of columns, a list of dicts, a run of W&B, or
    an EventAccumulator of TensorBoard. `settings` are those of the training, `framework` names its trainer if that is
    not found out, and `aliases` says which metrics columns hold.

    Raises:
        DoctorError: the source is missing, empty, unreadable, or holds no metric we know.
    """
    from ppo_doctor.diagnosis.analyze import request_of
    from ppo_doctor.report.notebook import run_of

    return run_of(_read(source, request_of(settings, framework=framework, aliases=aliases or {})))


def analyze(
    source: Given,
    *,
    settings: Mapping[str, object] | None = None,
    framework: str | None = None,
    aliases: Mapping[str, str] | None = None,
    target_return: float | None = None,
    rules: str | Path | Sequence[str | Path] = (),
) -> Diagnosis:
    """Diagnose one training run.

    `source`, `settings`, `framework` and `aliases` are those of `load_run`; `target_return` is a reward that is good
    enough, and `rules` are folders of rules beside the built-in ones.

    Raises:
        DoctorError: the source is missing, empty, unreadable, or holds no metric we know; a rule is invalid.
    """
    from pathlib import Path

    from ppo_doctor.checks.rulepack import load_pack
    from ppo_doctor.diagnosis.analyze import diagnose, request_of
    from ppo_doctor.report.notebook import diagnosis_of

    request = request_of(settings, framework=framework, aliases=aliases or {}, target_return=target_return)
    folders = [rules] if isinstance(rules, str | Path) else rules
    run = _read(source, request)
    return diagnosis_of(diagnose(run, load_pack([Path(folder) for folder in folders]), request), run)


def _read(source: Given, request: Request) -> ReadRun:
    """Read the run behind a URL, of a file or folder, or of an object."""
    from ppo_doctor.model.opening import is_url

    if isinstance(source, str) and is_url(source):
        from ppo_doctor.fleets.remote import read_run as fetched

        return fetched(source, request)
    from ppo_doctor.diagnosis.analyze import read_run

    return read_run(source, request)


def fleet(
    sources: str | Path | Sequence[str | Path],
    *,
    engine: str = "local",
    ray_address: str | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    settings: Mapping[str, object] | None = None,
    framework: str | None = None,
) -> pd.DataFrame:
    """Judge the runs of folders, patterns or URLs, and return a row for each; needs `pip install 'ppo-doctor[fleet]'`.

    `engine` is "local" (`jobs` processes, by default one for each processor) or "ray". With `out`, a Parquet file,
    only what is new or changed is judged, and the rows of earlier calls are returned, too.

    Raises:
        DoctorError: a source is missing or holds no run, or a package is not installed.
    """
    from pathlib import Path

    from ppo_doctor.fleets.frame import frame

    given = [sources] if isinstance(sources, str | Path) else sources
    return frame(
        [str(source) for source in given],
        engine,
        address=ray_address,
        jobs=jobs,
        out=Path(out) if out is not None else None,
        settings=settings,
        framework=framework,
    )


def judge_batch(batch: Mapping[str, Sequence[object]], column: str = "path") -> pa.Table:
    """Judge the runs that a column of a batch names, and return a row for each, as the table of a fleet has.

    For `ray.data.Dataset.map_batches`. What cannot be read is a row with `status` "failed".
    """
    from ppo_doctor.fleets.frame import batch as judged

    return judged(batch, column)
