"""What people install: the archives are built, installed into an empty environment, and used from an empty folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RULE_FILES = sorted(p for p in (ROOT / "rules").glob("*/*.toml") if p.parent.name != "causes")
LOG = ROOT / "sample_logs" / "sick" / "lr-zero.sb3"


@dataclass(frozen=True)
class Environment:
    """An environment of its own, with an empty working directory and an empty cache."""

    folder: Path
    work: Path

    @property
    def python(self) -> Path:
        return self.folder / ("Scripts" if os.name == "nt" else "bin") / "python"

    def run(self, *command: object, check: bool = True) -> str:
        clean = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PIP_", "VIRTUAL_ENV"))
        }
        done = subprocess.run(
            [str(part) for part in command],
            cwd=self.work,
            env=clean,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or not check, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def pip(self, *arguments: object) -> str:
        """Run our pip for that environment, which has none: to install one takes as long as all that is tested."""
        ours = (sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check")
        return self.run(*ours, *arguments)

    def doctor(self, *arguments: object) -> str:
        return self.run(self.python.with_name("ppo-doctor"), *arguments)

    def ask(self, code: str) -> object:
        """Return what an expression is worth in that environment."""
        return json.loads(self.run(self.python, "-c", f"import json\n{code}"))

    @property
    def site(self) -> Path:
        return Path(sysconfig.get_path("purelib", vars={"base": str(self.folder), "platbase": str(self.folder)}))


@pytest.fixture(scope="session")
def archives(tmp_path_factory):
    """Return the source archive and the wheel that is built from it, as an index would hold them."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (source,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return source, wheel


@pytest.fixture(scope="session")
def installed(archives, tmp_path_factory):
    """Return an environment that holds the wheel and what it depends on, and nothing else."""
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder)
    environment = Environment(folder, tmp_path_factory.mktemp("work"))
    environment.pip("install", "-q", "--no-compile", archives[1])  # what runs is compiled then: a tenth of it
    return environment


@pytest.fixture(scope="session")
def held(installed):
    """Return the names of the distributions in it."""
    return {entry["name"].lower() for entry in json.loads(installed.pip("list", "--format", "json"))}


def listed(environment):
    return sorted(line.split()[1] for line in environment.doctor("rules", "list").splitlines())


def judged(environment):
    log = environment.work / "run"
    shutil.copytree(LOG, log, dirs_exist_ok=True)
    return json.loads(environment.doctor("analyze", log, "--format", "json"))


def test_the_wheel_holds_the_package_and_its_rules_only(archives):
    names = zipfile.ZipFile(archives[1]).namelist()
    tops = {name.split("/")[0] for name in names}
    assert "ppo_doctor" in tops
    assert all(top == "ppo_doctor" or top.endswith(".dist-info") for top in tops)
    rules = {name.removeprefix("ppo_doctor/_rules/") for name in names if name.startswith("ppo_doctor/_rules/")}
    assert rules == {path.relative_to(ROOT / "rules").as_posix() for path in (ROOT / "rules").rglob("*.toml")}
    assert "ppo_doctor/py.typed" in names
    assets = ("report.css", "report.js", "theme.js", "fleet.css", "fleet.js")
    assert {f"ppo_doctor/report/assets/{name}" for name in assets} <= set(names)
    assert {f"ppo_doctor/tensorboard_plugin/static/index.{suffix}" for suffix in ("js", "css")} <= set(names)


def test_tensorboard_finds_the_tab_in_the_wheel(archives):
    with zipfile.ZipFile(archives[1]) as wheel:
        (points,) = (name for name in wheel.namelist() if name.endswith("/entry_points.txt"))
        said = wheel.read(points).decode()
    assert "[tensorboard_plugins]\nppo-doctor = ppo_doctor.tensorboard_plugin.plugin:DoctorPlugin" in said


def test_the_source_archive_can_be_worked_with(archives):
    with tarfile.open(archives[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "hatch_build.py", "Makefile", "LICENSE", "README.md"} <= names
    for folder in ("ppo_doctor", "rules", "tests", "sample_logs"):
        kept = {
            p.relative_to(ROOT).as_posix()
            for p in (ROOT / folder).rglob("*.*")
            if "__pycache__" not in p.parts and p.is_file()
        }
        assert kept <= names


@pytest.mark.parametrize(("kind", "folder"), [("rules", "rules"), ("frameworks", "ppo_doctor/trainers")])
def test_the_compiled_pack_is_what_the_toml_says(archives, kind, folder):
    from ppo_doctor.checks import rulepack
    from ppo_doctor.model.toml_files import parse_folder
    from ppo_doctor.trainers import detection

    build = {"rules": rulepack.build, "frameworks": detection.build}[kind]
    shipped = json.loads(zipfile.ZipFile(archives[1]).read(f"ppo_doctor/_compiled/{kind}.json"))
    assert shipped == json.loads(json.dumps(parse_folder(ROOT / folder, build)))


def test_an_installed_copy_lists_every_rule(installed):
    assert listed(installed) == [path.stem for path in sorted(RULE_FILES, key=lambda path: path.stem)]


def test_an_installed_copy_finds_the_cause(installed):
    report = judged(installed)
    assert report["causes"][0]["id"] == "lr-zero"
    assert report["verdict"] == "unhealthy"
    assert "lr-zero" in installed.doctor("explain", "lr-zero")


def test_an_installed_copy_shows_and_tests_itself(installed):
    told = installed.doctor("demo")
    assert [line.split()[0] for line in told.splitlines() if line.endswith("progress.csv")] == ["UNHEALTHY", "HEALTHY"]
    assert "sample_logs" not in told
    assert installed.doctor("selftest").strip().endswith("passed")


#: What a process with an installed copy says of itself.
SAYS = """
import sys, ppo_doctor.cli.application, ppo_doctor.diagnosis.analyze
from ppo_doctor.checks.rulepack import builtin_rules, load_pack
load_pack()
modules = list(sys.modules)
from ppo_doctor.cli.interactive.app import ReportApp
print(json.dumps([modules, str(builtin_rules()), ReportApp.TITLE]))
"""


def test_an_installed_copy_needs_no_torch_reads_its_own_rules_compiled_and_has_its_report(installed, held):
    assert "torch" not in held
    assert {"ppo-doctor", "numpy"} <= held
    modules, rules, title = installed.ask(SAYS)
    assert {"pandas", "torch", "tomllib"} & set(modules) == set()
    assert Path(rules).is_relative_to(installed.site)
    assert (installed.site / "ppo_doctor" / "cli" / "interactive" / "report.tcss").is_file()
    assert title == "ppo-doctor"


def test_a_plain_install_is_small(held):
    assert len(held) <= 22, sorted(held)


def test_an_installed_copy_makes_frames(installed):
    shutil.copytree(LOG, installed.work / "run", dirs_exist_ok=True)
    assert installed.ask("import ppo_doctor; print(json.dumps(len(ppo_doctor.load_run('run').to_frame())))") == 80


def test_foreign_rules_and_modules_of_our_names_are_not_adopted(installed):
    """A stranger's site-packages/rules must not become ours, nor what lies in the working directory."""
    stranger = installed.site / "rules"
    stranger.mkdir()
    (stranger / "complaints.toml").write_text("complaint = []\n", encoding="utf-8")
    (installed.work / "rules").mkdir()
    (installed.work / "statistics.py").write_text("raise SystemExit('shadowed')\n", encoding="utf-8")
    try:
        assert len(listed(installed)) == len(RULE_FILES)
    finally:
        shutil.rmtree(stranger)
        (installed.work / "statistics.py").unlink()
        (installed.work / "rules").rmdir()
