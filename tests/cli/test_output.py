"""Where reports may be written: never over an input, through links, and straight into what is no file."""

from __future__ import annotations

import gc
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SICK = ROOT / "sample_logs" / "sick" / "lr-zero.sb3"
COMMAND = [sys.executable, "-m", "ppo_doctor"]
posix = pytest.mark.skipif(os.name == "nt", reason="needs links, pipes and devices")


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with a run, a policy, a baseline and a rule pack."""
    tmp_path = tmp_path_factory.mktemp("made")
    shutil.copytree(SICK, tmp_path / "run")
    (tmp_path / "ppo-doctor.toml").write_text('fail-on = "critical"\n', encoding="utf-8")
    (tmp_path / "other.toml").write_text('fail-on = "critical"\n', encoding="utf-8")
    (tmp_path / "settings.yaml").write_text("gamma: 0.99\n", encoding="utf-8")
    subprocess.run([*COMMAND, "analyze", "run", "-f", "json", "-o", "main.json"], check=True, cwd=tmp_path)
    new = [*COMMAND, "rules", "new", "much-clipped", "--dir", "pack"]
    subprocess.run(new, check=True, capture_output=True, cwd=tmp_path)
    return tmp_path


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """Return a copy of that folder, in which the command works."""
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "here"))
    return tmp_path / "here"


#: command → inputs that it must keep, whatever is wrong with the rest of the line
INPUTS = {
    "analyze run": ["run/progress.csv", "run/config.json"],
    "analyze run/progress.csv": ["run/progress.csv", "run/config.json"],
    "analyze run/*.csv": ["run/progress.csv"],
    "analyze run --config settings.yaml": ["settings.yaml"],
    "analyze run --rules pack": ["pack/much-clipped.toml"],
    "analyze run --fail-on nothing": ["run/progress.csv", "run/config.json"],
    "analyze run --select nothing": ["run/progress.csv"],
    "analyze run run --jobs 2": ["run/progress.csv", "run/config.json"],
    "analyze run nowhere": ["run/progress.csv"],
    "gate run": ["run/progress.csv", "ppo-doctor.toml"],
    "gate run --policy other.toml --baseline main.json": ["other.toml", "main.json"],
    "compare run main.json": ["run/progress.csv", "main.json"],
}


@pytest.mark.parametrize("command", INPUTS)
@posix
def test_no_input_is_replaced(cli, here, command):
    offenders = []
    for number, target in enumerate(INPUTS[command]):
        (here / f"symbolic{number}.json").symlink_to(here / target)
        (here / f"hard{number}.json").hardlink_to(here / target)
        before = contents(here)
        for name in (target, f"symbolic{number}.json", f"hard{number}.json"):
            outcome = cli(*command.split(), "--format", "json", "-o", name)
            if contents(here) != before or outcome.code != 2 or "Traceback" in outcome.err:
                offenders.append((name, outcome.code, outcome.err))
    assert offenders == []


def test_no_format_replaces_an_input(cli, here):
    before = contents(here)
    for name in ("json", "text", "html", "sarif", "junit", "markdown", "github", "svg"):
        assert cli("analyze", "run", "--format", f"{name}=run/progress.csv").code == 2
    assert contents(here) == before


def test_standard_input_is_an_input(here):
    before = contents(here)
    with (here / "run" / "progress.csv").open("rb") as log:
        run = subprocess.run([*COMMAND, "analyze", "-", "-o", "run/progress.csv"], stdin=log, check=False)
    assert run.returncode == 2
    assert contents(here) == before


def test_an_export_replaces_no_input(here):
    """The interactive report names its file after the run was read."""
    from ppo_doctor.cli.output import files_of, write
    from ppo_doctor.diagnosis.analyze import load_run
    from ppo_doctor.model.errors import DoctorError

    read = files_of(load_run("run/progress.csv"))
    for name in ("run/progress.csv", "run/config.json"):
        before = contents(here)
        with pytest.raises(DoctorError):
            write("report", Path(name), inputs=read)
        assert contents(here) == before


def test_an_earlier_report_is_replaced(cli, here):
    for _ in range(2):
        assert cli("analyze", "run", "--format", "json", "-o", "run/report.json").code == 0
    assert json.loads((here / "run" / "report.json").read_bytes())["verdict"] == "unhealthy"
    assert {path.name for path in (here / "run").iterdir()} == {"progress.csv", "config.json", "report.json"}


@posix
def test_a_link_stays_and_its_target_is_replaced(cli, here):
    (here / "reports").mkdir()
    (here / "reports" / "old.json").write_text("old", encoding="utf-8")
    (here / "reports" / "old.json").chmod(0o640)
    (here / "latest.json").symlink_to("reports/old.json")
    (here / "next.json").symlink_to("reports/new.json")
    for link, target in (("latest.json", "old.json"), ("next.json", "new.json")):
        assert cli("analyze", "run", "--format", "json", "-o", link).code == 0
        assert (here / link).is_symlink()
        assert json.loads((here / "reports" / target).read_bytes())["verdict"] == "unhealthy"
    assert stat.S_IMODE((here / "reports" / "old.json").stat().st_mode) == 0o640
    assert {path.name for path in (here / "reports").iterdir()} == {"old.json", "new.json"}


@posix
def test_a_pipe_is_written_to(here):
    os.mkfifo(here / "pipe")
    with subprocess.Popen([*COMMAND, "analyze", "run", "--format", "json=pipe"], stdout=subprocess.PIPE) as process:
        written = json.loads((here / "pipe").read_bytes())
        assert process.wait(60) == 0
    assert written["verdict"] == "unhealthy"
    assert stat.S_ISFIFO((here / "pipe").stat().st_mode)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the devices of Linux")
def test_a_device_is_written_to(cli):
    assert cli("analyze", SICK, "-o", "/dev/null").code == 0
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    full = cli("analyze", SICK, "-o", "/dev/full", "--fail-on", "high")
    assert (full.code, "Traceback" in full.err) == (2, False)
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="needs the names that Linux gives to descriptors")
@pytest.mark.parametrize("name", ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1", "/dev/stderr"])
def test_what_a_shell_redirects_is_kept(here, name):
    """A file behind /dev/stdout holds what others wrote, and may get more."""
    with (here / "all.txt").open("w", encoding="utf-8") as file:
        file.write("before\n")
        file.flush()
        run = subprocess.run([*COMMAND, "analyze", "run", "-o", name], stdout=file, stderr=file, check=False)
    text = (here / "all.txt").read_text(encoding="utf-8")
    assert run.returncode == 0
    assert text.startswith("before\n")
    assert "lr-zero" in text


@posix
@pytest.mark.skipif(os.name != "nt" and os.geteuid() == 0, reason="root may write everything")
def test_a_protected_file_is_kept(cli, here):
    (here / "kept.json").write_text("kept", encoding="utf-8")
    (here / "kept.json").chmod(0o444)
    assert cli("analyze", "run", "-o", "kept.json").code == 2
    assert (here / "kept.json").read_text(encoding="utf-8") == "kept"


def test_what_fails_midway_leaves_the_file(here):
    from ppo_doctor.cli.output import writing

    (here / "report.json").write_text("old", encoding="utf-8")
    before = contents(here)

    def half():
        with writing(here / "report.json") as put:
            put("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert contents(here) == before


@pytest.mark.parametrize(
    ("places", "further"), [(["json"], []), (["json", "sarif=runs.sarif"], ["nowhere.jsonl"])], ids=["one", "two"]
)
def test_what_was_written_is_not_kept(cli, here, monkeypatch, places, further):  # noqa: ARG001 - it works there
    """Neither a run nor its diagnosis is alive when the one after the next is judged, however many there are."""
    from ppo_doctor.diagnosis import attempt
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.run import Run

    judge = attempt.diagnose
    alive: list[int] = []

    def counted(*arguments):
        gc.collect()
        alive.append(sum(isinstance(found, Run | Diagnosis) for found in gc.get_objects()))
        return judge(*arguments)

    monkeypatch.setattr(attempt, "diagnose", counted)
    formats = [word for place in places for word in ("--format", place)]
    most = {}
    gc.collect()
    gc.freeze()  # what was there before is none of this test's, and takes long to go through
    for count in (4, 7):
        alive.clear()
        outcome = cli("analyze", *["run/progress.csv"] * count, *further, *formats, "--separate", "--fail-on", "high")
        assert outcome.code == 1
        assert len(outcome.json["diagnoses"]) == len(alive) == count
        most[count] = max(alive) - alive[0]
    gc.unfreeze()
    assert most[7] == most[4] <= 4


def test_json_lists_what_was_found_and_everything_on_demand(cli, validate):
    found, everything = (cli("analyze", SICK, "--format", "json", *more).json for more in ([], ["--all"]))
    validate(found)
    validate(everything)
    assert {finding["answer"] for finding in found["checks"]} <= {"yes", "errored"}
    assert [f for f in everything["checks"] if f["answer"] in ("yes", "errored")] == found["checks"]
    assert {key: found[key] for key in found if key != "checks"} == {
        key: everything[key] for key in everything if key != "checks"
    }
    counts = everything["coverage"]
    assert sum(counts[key] for key in ("yes", "no", "unknown", "errored")) == len(everything["checks"])


@posix
def test_two_formats_never_share_a_file_by_way_of_a_link(cli, here):
    (here / "link.html").symlink_to("report.json")
    (here / "folder").symlink_to(".")
    (here / "old.json").write_text("old", encoding="utf-8")
    (here / "hard.html").hardlink_to(here / "old.json")
    for first, second in (
        ("report.json", "link.html"),
        ("link.html", "report.json"),
        ("report.json", "folder/report.json"),
    ):
        before = contents(here)
        outcome = cli("analyze", "run", "-f", f"json={first}", "-f", f"html={second}")
        assert outcome.code == 2
        assert first in outcome.err
        assert second in outcome.err
        assert contents(here) == before
    # Two names of one file become two files.
    assert cli("analyze", "run", "-f", "json=old.json", "-f", "html=hard.html").code == 0
    assert (json.loads((here / "old.json").read_bytes())["verdict"], (here / "hard.html").read_bytes()[:9]) == (
        "unhealthy",
        b"<!doctype",
    )
