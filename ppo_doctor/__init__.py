"""ppo-doctor: find out what is wrong with a PPO run, on what evidence, and what to do first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.request import Request
    from ppo_doctor.model.run import Run

__version__ = "0.2.0"
__all__ = ["__version__", "analyze", "fleet", "judge_batch", "load_run"]


def load_run(source: str | Path, *, settings: Mapping[str, object] | None = None, framework: str | None = None) -> Run:
    """Read one log into an immutable `Run`; `source` is a file, a run folder or a URL.

    Raises:
        DoctorError: the source is missing, empty, unreadable, or holds no metric we know.
    """
    from ppo_doctor.diagnosis.analyze import load_run as load

    return load(source, settings=settings, framework=framework, read=_reader(source))


def _reader(source: str | Path) -> Callable[[str, Request], Run]:
    """Return what reads the run of a file or folder, or of a URL."""
    from ppo_doctor.model.opening import is_url

    if is_url(str(source)):
        from ppo_doctor.fleets.remote import read_run
    else:
        from ppo_doctor.diagnosis.analyze import read_run
    return read_run


def analyze(
    source: str | Path, *, settings: Mapping[str, object] | None = None, framework: str | None = None
) -> Diagnosis:
    """Diagnose one run with the built-in rules; `source` is a file, a run folder or a URL.

    Raises:
        DoctorError: the source is missing, empty, unreadable, or holds no metric we know.
    """
    from ppo_doctor.diagnosis.analyze import analyze as diagnose

    return diagnose(source, settings=settings, framework=framework, read=_reader(source))


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
