"""What the docs tell people to copy is executed here; the action's own shell steps too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.cli.policy import FIELDS, applied, read_policy

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_logs"
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"<!-- recipe: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def recipes(kind):
    return [text for name, text in RECIPES if name == kind]


@pytest.fixture
def project(tmp_path):
    """Return a project with the runs that the recipes speak of, where `ppo-doctor` and `python` are ours."""
    names = ("main", "smoke", "seed1", "seed2", "seed3")
    for name in names:
        shutil.copytree(SAMPLES / "healthy" / "healthy.sb3", tmp_path / "runs" / name)
    return tmp_path


def shell(script, folder, **variables):
    """Run a script as GitHub's `shell: bash` does, with this interpreter first on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GITHUB_")}
    # The plugin by name, for a checkout that was installed before it was declared; twice would be an error.
    plugin = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "ppo_doctor.cli.pytest_plugin"}
    environment = clean | {"PATH": path, **plugin, **variables}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@bash
@pytest.mark.parametrize("script", recipes("shell"), ids=lambda text: text.split("\n")[0][:50])
def test_shell_recipes_run(project, script):
    done = shell(script, project)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_policy_recipe_is_valid_and_complete(tmp_path):
    (text,) = recipes("policy")
    (tmp_path / "ppo-doctor.toml").write_text(text, encoding="utf-8")
    policy = read_policy(tmp_path / "ppo-doctor.toml")
    applied(policy, load_pack())
    assert len(policy.budgets) == 2
    assert all(f"{key} =" in PAGE or f"[{key}" in PAGE for key in (field.removesuffix("?") for field in FIELDS))


@bash
def test_the_gitlab_recipe_runs(project):
    (text,) = recipes("gitlab")
    job = yaml.safe_load(text)["smoke"]
    assert shell("\n".join(job["script"]), project).returncode == 0
    assert (project / job["artifacts"]["reports"]["junit"]).is_file()


@bash
def test_the_jenkins_recipe_runs(project):
    (text,) = recipes("jenkins")
    (command,) = re.findall(r"sh '([^']+)'", text)
    (report,) = re.findall(r"junit '([^']+)'", text)
    assert shell(command, project).returncode == 0
    assert (project / report).is_file()


@bash
def test_the_pytest_recipe_runs(project):
    (text,) = recipes("pytest")
    (project / "test_smoke.py").write_text(text, encoding="utf-8")
    assert "1 passed" in shell("python -m pytest -q", project).stdout


def test_the_action_recipe_names_inputs_of_the_action():
    (text,) = recipes("action")
    steps = yaml.safe_load(text)["jobs"]["smoke"]["steps"]
    given = steps[-1]["with"]
    assert set(given) <= set(ACTION["inputs"])
    assert {name for name, spec in ACTION["inputs"].items() if spec.get("required")} <= set(given)


def test_the_pre_commit_recipe_names_a_hook_of_ours():
    (text,) = recipes("pre-commit")
    hooks = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}
    (repo,) = yaml.safe_load(text)["repos"]
    assert [hook["id"] in hooks for hook in repo["hooks"]] == [True]
    assert hooks["ppo-doctor-config"].keys() >= {"id", "name", "entry", "language", "files"}


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("configs/ppo.yaml", True),
        ("conf/trainer/base.yaml", True),
        ("train_config.json", True),
        ("hparams.toml", True),
        ("pyproject.toml", False),
        ("package.json", False),
        ("docs/index.md", False),
        (".github/workflows/ci.yml", False),
    ],
)
def test_the_hook_looks_at_configurations(path, wanted):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert bool(re.search(hook["files"], path) and not re.search(hook["exclude"], path)) is wanted


@bash
def test_the_hook_runs_as_pre_commit_runs_it(tmp_path):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    (tmp_path / "ppo.yaml").write_text("ppo_epochs: 4\ntarget_kl: 0.0001\n", encoding="utf-8")
    done = shell(f"{hook['entry']} ppo.yaml", tmp_path)
    assert (done.returncode, "target-kl-below-any-step" in done.stdout) == (1, True)


def test_the_action_is_a_composite_action():
    assert set(ACTION) <= {"name", "author", "description", "inputs", "outputs", "runs", "branding"}
    assert ACTION["runs"]["using"] == "composite"
    for spec in ACTION["inputs"].values():
        assert set(spec) <= {"description", "required", "default", "deprecationMessage"}
        assert isinstance(spec.get("default", ""), str)
    for step in ACTION["runs"]["steps"]:
        assert set(step) <= {"name", "id", "if", "shell", "env", "run", "uses", "with", "working-directory"}
        assert "run" not in step or step["shell"] == "bash"


def test_no_input_is_pasted_into_a_script():
    """An expression inside `run` would execute whatever the input holds."""
    assert all("${{" not in step.get("run", "") for step in ACTION["runs"]["steps"])
    used = {name for step in ACTION["runs"]["steps"] for name in re.findall(r"inputs\.([\w-]+)", str(step.get("env")))}
    assert used == set(ACTION["inputs"])


def judge(folder, **inputs):
    """Execute the action's second step with these inputs, the others at their defaults."""
    step = next(step for step in ACTION["runs"]["steps"] if step.get("id") == "gate")
    values = {name: spec.get("default", "") for name, spec in ACTION["inputs"].items()} | inputs
    asked = {key: re.search(r"inputs\.([\w-]+)", text) for key, text in step["env"].items()}
    names = {key: found[1] for key, found in asked.items() if found}
    python = {"PYTHON": inputs.get("PYTHON", sys.executable)}
    files = {name: str(folder / name.lower()) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    path = {"PATH": inputs["PATH"]} if "PATH" in inputs else {}
    done = shell(step["run"], folder, **{key: values[name] for key, name in names.items()}, **python, **files, **path)
    output = dict(line.partition("=")[::2] for line in (folder / "github_output").read_text().splitlines())
    return done, output


@bash
def test_the_action_takes_every_input(project):
    (project / "mine.toml").write_text('fail-on = "never"', encoding="utf-8")
    judge(project, runs="runs/main", reports="first")
    inputs = {"policy": "mine.toml", "baseline": "first/report.json", "group": "true", "args": "--quiet --why"}
    done, _ = judge(project, runs="runs/seed1 runs/seed2", **inputs)
    assert done.returncode == 0, done.stdout + done.stderr


@bash
def test_an_input_is_never_code(project):
    done, _ = judge(project, runs="\n".join(["$(touch pwned)", "`touch pwned`", "; touch pwned", "--output=pwned"]))
    assert done.returncode != 0
    assert not (project / "pwned").exists()
