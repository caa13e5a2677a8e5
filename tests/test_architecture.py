"""House rules that no compiler enforces: imports run one way, functions stay small, nothing is unpickled."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ppo_doctor"
MODULES = sorted(PACKAGE.rglob("*.py"))

#: Package → packages that it may import, for types or at run time.
ALLOWED: dict[str, set[str]] = {
    "model": set(),
    "trainers": {"model"},
    # console text is told from prose by the names that trainers give metrics and settings
    "readers": {"model", "trainers"},
    "runs": {"model", "trainers", "readers"},
    "checks": {"model", "trainers"},
    "diagnosis": {"model", "trainers", "readers", "runs", "checks"},
    "report": {"model", "trainers", "diagnosis"},
    # it runs inside training scripts
    "record": set(),
    "fleets": {"model", "trainers", "readers", "runs", "checks", "diagnosis", "report"},
    "tensorboard_plugin": {"model", "runs", "checks", "diagnosis", "report", "fleets"},
    "cli": {"model", "trainers", "readers", "runs", "checks", "diagnosis", "report", "record", "fleets"},
}
#: Modules at the top: the API, the entry point, and what people's tests import.
TOP = {"__init__", "__main__", "testing"}
#: Modules that may import any package: where a run is judged while it trains, and only if that is asked for; what
#: people's tests import.
ANY = {
    "record/online.py",
    "cli/pytest_plugin.py",
    "testing.py",
    "__main__.py",
    "__init__.py",
}
#: Lower it when modules are merged.
MOST_MODULES = 302


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(path)))


def imports(path: Path) -> Iterator[str]:
    """Yield the packages of ours that a module imports, wherever the import stands."""
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: relative import"
            if node.module == "ppo_doctor":
                yield from (alias.name for alias in node.names if not alias.name.startswith("__"))
            elif node.module and node.module.startswith("ppo_doctor."):
                yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("ppo_doctor."))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in nodes(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def of_each_module(wrong: Callable[[Path], object]) -> dict[str, object]:
    """Return what is wrong with each module, by its name, where anything is."""
    return {name_of(path): found for path in MODULES if (found := wrong(path))}


def test_nothing_is_outside_the_packages():
    assert {package_of(path) for path in MODULES} == {*ALLOWED, *TOP}
    assert len(MODULES) <= MOST_MODULES


def test_imports_run_one_way():
    def against_it(path: Path) -> set[str]:
        own = package_of(path)
        return set() if name_of(path) in ANY else set(imports(path)) - ALLOWED[own] - {own}

    assert of_each_module(against_it) == {}


def test_the_order_of_packages_has_no_circle():
    seen: set[str] = set()
    while ready := {own for own in ALLOWED if own not in seen and ALLOWED[own] <= seen}:
        seen |= ready
    assert set(ALLOWED) - seen == set()


def test_modules_are_short():
    assert of_each_module(lambda path: len(path.read_text(encoding="utf-8").splitlines()) > 500) == {}


def test_functions_are_short():
    assert of_each_module(lambda path: [f"{f.name}: {length(f)}" for f in functions(path) if length(f) > 60]) == {}


def test_most_functions_are_very_short():
    assert statistics.median(length(f) for path in MODULES for f in functions(path)) < 10


def undocumented(path: Path) -> list[str]:
    """Return the public names of a module that have no docstring."""
    module = tree(path)
    classes = [node for node in module.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    holders = [module, *classes]
    definitions = [node for holder in holders for node in holder.body]
    public = [
        node
        for node in definitions
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]
    return [node.name for node in public if not ast.get_docstring(node)]


def test_public_names_are_documented() -> None:
    assert of_each_module(lambda path: not ast.get_docstring(tree(path))) == {}
    assert of_each_module(undocumented) == {}


def test_no_module_is_named_after_nothing():
    vague = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base"}
    assert [name_of(path) for path in MODULES if path.stem in vague or "manager" in path.stem] == []


def safe_loaders(path: Path) -> set[str]:
    """Return PyYAML's safe loaders and the classes of this module that extend them."""
    safe = {"yaml.SafeLoader", "yaml.CSafeLoader"}
    classes = [node for node in nodes(path) if isinstance(node, ast.ClassDef)]
    return safe | {node.name for node in classes if {ast.unparse(base) for base in node.bases} & safe}


def called(node: ast.Call) -> str:
    return ast.unparse(node.func)


#: Calls that run what they read.
BANNED_CALLS = {
    *("eval", "exec", "compile", "os.system", "joblib.load", "marshal.loads"),
    *("yaml.unsafe_load", "yaml.full_load"),
}
BANNED_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}


def unsafe(path: Path) -> list[str]:
    """Return the imports and calls of a module that could run what a file says."""
    names = {alias.name for node in nodes(path) if isinstance(node, ast.Import) for alias in node.names}
    modules = {str(node.module) for node in nodes(path) if isinstance(node, ast.ImportFrom)}
    calls = [node for node in nodes(path) if isinstance(node, ast.Call)]
    found = [ast.unparse(node) for node in calls if called(node) in BANNED_CALLS or not loads_safely(node, path)]
    return [*sorted((names | modules) & BANNED_MODULES), *found]


def loads_safely(node: ast.Call, path: Path) -> bool:
    given = {str(keyword.arg): ast.unparse(keyword.value) for keyword in node.keywords}
    match called(node):
        case "yaml.load" | "yaml.load_all":
            return given.get("Loader") in safe_loaders(path)
        case "torch.load":
            return given.get("weights_only") == "True"
        case "np.load" | "numpy.load":
            return given.get("allow_pickle", "False") == "False"
    return True


def test_nothing_is_unpickled_or_evaluated() -> None:
    assert of_each_module(unsafe) == {}


def swallows(path: Path) -> list[int]:
    """Return the lines with a bare except, `pass` under a broad one, or `suppress(Exception)`."""
    found = []
    for node in nodes(path):
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is not None and ast.unparse(node.type) in ("Exception", "BaseException")
            silent = all(isinstance(statement, ast.Pass | ast.Continue) for statement in node.body)
            if node.type is None or (broad and silent):
                found.append(node.lineno)
        elif isinstance(node, ast.Call) and called(node) in ("suppress", "contextlib.suppress"):
            found += [node.lineno for argument in node.args if ast.unparse(argument) == "Exception"]
    return found


def test_no_error_is_swallowed() -> None:
    assert of_each_module(swallows) == {}


def test_readers_name_no_metric():
    """A reader knows bytes and no names: M containers + N frameworks, never M × N."""
    from ppo_doctor.model.metrics import METRICS

    telling = {name for name in METRICS if "_" in name}
    for path in (PACKAGE / "readers").rglob("*.py"):
        words = {node.value for node in nodes(path) if isinstance(node, ast.Constant)}
        assert telling & {word for word in words if isinstance(word, str)} == set(), path.name


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the repository, not a source archive")
def test_no_path_of_a_machine_is_tracked():
    # Written in pieces, so that this file does not hold what it looks for.
    paths = re.compile(
        rb"(?<![\w.])/(?:wor" + rb"k/(?:main|shared)|ho" + rb"me/[a-z]\w+/|Use" + rb"rs/[A-Za-z]\w+/|ro" + rb"ot/)"
    )
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    assert files
    found = {path.relative_to(ROOT).as_posix() for path in files if path.is_file() and paths.search(path.read_bytes())}
    assert found == set()


#: A quantity that a test asks a run for.
ASKED = re.compile(r'(?:fact|\.series)\(\s*"(\w+)"')


def test_no_test_asks_for_a_quantity_that_is_not_there():
    """What nobody computes is None in every run, so that a test that expects None could not fail."""
    source = "".join(path.read_text(encoding="utf-8") for path in MODULES)
    known = set(re.findall(r"\w+", source))
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    asked = {(name, path.name) for path in tests for name in ASKED.findall(path.read_text(encoding="utf-8"))}
    assert asked
    assert not {(name, path) for name, path in asked if name not in known}


#: Modules that open what the package itself wrote or ships, or whose files were opened to be followed.
OPENS_ITS_OWN = {
    *(
        "record.script.launch",
        "report.html_markup",
        "tensorboard_plugin.plugin",
        "model.opening",
        "model.toml_files",
        "cli.rules",
        "cli.skill",
        "trainers.guessing.value_forms",
        "trainers.guessing.hints",
    ),
}


def test_files_of_others_are_opened_in_one_place():
    """Of a device or a pipe `open` may never come back; see `model/opening`."""
    found = set()
    for path in MODULES:
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for node in nodes(path):
            if isinstance(node, ast.Call) and _opens_to_read(node) and name not in OPENS_ITS_OWN:
                found.add(f"{name}:{node.lineno}")
    assert not found


def _opens_to_read(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    modes = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    whole = call.func.attr in ("read_bytes", "read_text") and not call.args
    return whole or (call.func.attr == "open" and modes in (["r"], ["rb"]))
