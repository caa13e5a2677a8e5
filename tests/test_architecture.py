"""House rules that no compiler enforces: imports run one way, functions stay small, nothing is unpickled."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.each import for_each

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ppo_doctor"
MODULES = sorted(PACKAGE.rglob("*.py"))

#: Room → rooms that it may import, for types or at run time. A new room needs a row.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "opening": {"errors"},
    "toml_text": set(),
    "model": set(),
    "arrays": {"model"},
    "metrics": {"model"},
    "rounding": {"model"},
    "table": {"model"},
    "compiled": {"errors", "opening", "toml_text"},
    "evidence": {"model"},
    "predicates": {"arrays", "model"},
    "readers": {"ingest", "arrays", "errors", "literals", "model", "opening", "table"},
    "ingest": {"arrays", "model"},
    "frameworks": {"compiled", "errors", "ingest", "metrics", "model"},
    "configuration": {"configs", "errors", "frameworks", "ingest", "model"},
    # bytes and lines of configurations; it knows no trainer
    "configs": {"literals", "toml_text"},
    "literals": set(),
    "config_files": {"configs", "configuration", "errors", "frameworks", "ingest", "model", "opening"},
    "config_beside": {"config_files", "configs", "configuration", "errors", "frameworks", "model", "opening"},
    "config_agreement": {"arrays", "builder", "config_beside", "configuration", "evidence", "frameworks", "model"},
    "config_runs": {"configuration", "errors", "frameworks", "model", "reading"},
    "aliases": {"compiled", "errors", "frameworks", "metrics", "opening"},
    "columns": {
        "aliases",
        "builder",
        "clocks",
        "errors",
        "frameworks",
        "ingest",
        "metrics",
        "model",
        "sources",
        "table",
    },
    "builder": {"arrays", "clocks", "frameworks", "ingest", "metrics", "model", "rounding", "table"},
    "clocks": {"model", "table"},
    "signals": {"arrays", "model"},
    "derive": {"arrays", "evidence", "frameworks", "metrics", "model", "rounding", "signals"},
    # rulepack asks derive and metrics which names exist, nothing else
    "rulepack": {
        *("compiled", "derive", "errors", "forms", "frameworks", "installed", "metrics", "model", "overrides"),
        *("packfiles", "weighing"),
    },
    "weighing": {"model"},
    "forms": {"errors"},
    "overrides": {"forms", "model"},
    "packfiles": {"compiled", "errors", "forms", "model", "overrides"},
    "installed": {"compiled", "errors"},
    "rule_skeleton": {"errors", "rulepack"},
    "cutting": {"model"},
    "engine": {"derive", "errors", "evidence", "model", "predicates"},
    "diagnose": {"arrays", "configs", "errors", "evidence", "frameworks", "metrics", "model", "rulepack"},
    "summary": {"derive", "evidence", "model", "rulepack"},
    "diagnosis": {"derive", "diagnose", "engine", "metrics", "model", "rulepack", "summary"},
    "sources": {"config_files", "errors", "model", "readers"},
    "testing": {
        *("cli", "configuration", "derive", "engine", "errors", "forms", "frameworks", "metrics", "model"),
        *("pipeline", "report", "rounding"),
    },
    "testing_plugin": {"errors", "testing"},
    # a diagnosis as people are told it: data, which every report prints
    "story": {"evidence", "frameworks", "model"},
    "report": {"diagnose", "errors", "evidence", "ingest", "model", "story"},
    "groups": {"model"},
    "divergence": {"arrays", "metrics", "model"},
    "compare": {"divergence", "groups", "model", "story"},
    "whatif": {"configuration", "errors", "frameworks", "model"},
    # it judges nothing: diagnoses, and how to make others, are given to it
    "tui": {
        "arrays",
        "cli",
        "configs",
        "configuration",
        "cutting",
        "errors",
        "evidence",
        "metrics",
        "model",
        "readers",
        "report",
        "story",
    },
    "tensors": {"errors", "ingest", "literals", "model", "opening"},
    "tensor_runs": {"configuration", "errors", "frameworks", "metrics", "model", "reading", "rounding", "tensors"},
    # it runs inside training scripts: it knows nothing of logs or rules
    "record": set(),
    "inspection": {
        *("configuration", "derive", "engine", "errors", "evidence", "frameworks", "metrics", "model", "rulepack"),
    },
    "splitting": {"arrays", "ingest", "model", "table"},
    "factors": {"model", "table"},
    "examples": {"compiled", "evidence", "model", "pipeline", "report", "rulepack", "testing"},
    "docs": {"errors", "examples", "frameworks", "manual", "metrics", "model", "report", "rulepack"},
    "manual": {"errors", "frameworks", "metrics", "model", "report", "rulepack"},
    "reading": {
        *("builder", "columns", "config_agreement", "config_beside", "config_files", "configuration", "cutting"),
        *("errors", "factors", "frameworks", "ingest", "model", "monitors", "name_notes", "readers", "rescaling"),
        *("sources", "splitting", "table", "unread_cells"),
    },
    "unread_cells": {"configuration", "frameworks", "model", "table"},
    "rescaling": {"arrays", "frameworks", "model"},
    "agreement": {"arrays", "model"},
    # what is said of names that were guessed
    "name_notes": {"columns", "configuration", "frameworks", "model"},
    # what Monitor files of several environments are together
    "monitors": {"model", "table"},
    "joining": {"arrays", "builder", "frameworks", "model", "reading", "splitting", "table"},
    "contents": {
        *("builder", "errors", "frameworks", "joining", "model", "monitors", "readers", "reading", "sources", "table"),
        "trainers",
    },
    "trainers": {"builder", "frameworks", "model", "reading", "table"},
    "merging": {
        *("agreement", "arrays", "columns", "config_runs", "contents", "errors", "frameworks", "model"),
        *("reading", "sources"),
        "tensor_runs",
    },
    "watch": {
        *("cutting", "diagnose", "errors", "evidence", "model", "pipeline", "readers", "report", "rulepack"),
        *("sources", "story", "table"),
    },
    "pipeline": {
        *("configuration", "derive", "diagnosis", "engine", "errors", "merging", "model", "predicates", "readers"),
        *("reading", "rulepack", "sources", "trainers"),
    },
    "__init__": {"model", "pipeline"},
    "__main__": {"cli", "errors"},
}
#: Pages of the manual draw the cases of a rule.
ALLOWED_FILES = {
    # where a run is judged while it trains: imported only if that is asked for
    "record/online.py": {"errors", "model", "pipeline", "rulepack", "watch"},
    "report/pages.py": {"testing", "metrics"},
    "report/inspection_text.py": {"inspection"},
    "report/comparison.py": {"compare"},
    "report/comparison_html.py": {"compare"},
}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else path.stem


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(path)))


def imports(path: Path) -> Iterator[str]:
    """Yield the rooms of ours that a module imports, wherever the import stands."""
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


@for_each(MODULES, name_of)
def test_imports_run_one_way(path):
    own = room(path)
    if own == "cli":
        return
    assert own in ALLOWED, f"{own} has no place in the order of imports yet"
    allowed = ALLOWED[own] | {own} | ALLOWED_FILES.get(name_of(path), set())
    assert set(imports(path)) - allowed == set()


def test_the_order_of_imports_has_no_circle():
    seen: set[str] = set()
    while ready := {own for own in ALLOWED if own not in seen and ALLOWED[own] <= seen | {own, "cli"}}:
        seen |= ready
    assert set(ALLOWED) - seen == set()


#: What else runs a gate or writes reports: the interactive report, and `assert_healthy` for people's tests.
USES_THE_COMMAND_LINE = ("cli", "__main__", "testing", "tui")


@for_each([path for path in MODULES if room(path) not in USES_THE_COMMAND_LINE], name_of)
def test_nobody_imports_the_command_line(path):
    assert "cli" not in set(imports(path))


@for_each(MODULES, name_of)
def test_modules_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@for_each(MODULES, name_of)
def test_functions_are_short(path):
    assert [f"{f.name}: {length(f)} lines" for f in functions(path) if length(f) > 60] == []


def test_most_functions_are_very_short():
    assert statistics.median(length(f) for path in MODULES for f in functions(path)) < 10


@for_each(MODULES, name_of)
def test_public_names_are_documented(path):
    module = tree(path)
    assert ast.get_docstring(module)
    classes = [node for node in module.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    holders = [module, *classes]
    definitions = [node for holder in holders for node in holder.body]
    public = [
        node
        for node in definitions
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]
    assert [node.name for node in public if not ast.get_docstring(node)] == []


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


@for_each(MODULES, name_of)
def test_nothing_is_unpickled_or_evaluated(path):
    banned = {
        "eval",
        "exec",
        "compile",
        "yaml.unsafe_load",
        "yaml.full_load",
        "os.system",
        "joblib.load",
        "marshal.loads",
    }
    calls = [node for node in nodes(path) if isinstance(node, ast.Call)]
    assert [called(node) for node in calls if called(node) in banned] == []
    names = {alias.name for node in nodes(path) if isinstance(node, ast.Import) for alias in node.names}
    modules = {node.module for node in nodes(path) if isinstance(node, ast.ImportFrom)}
    assert (names | modules) & {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"} == set()
    for node in calls:
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if called(node) in ("yaml.load", "yaml.load_all"):
            assert given.get("Loader") in safe_loaders(path)
        if called(node) == "torch.load":
            assert given.get("weights_only") == "True"
        if called(node) in ("np.load", "numpy.load"):
            assert given.get("allow_pickle", "False") == "False"


@for_each(MODULES, name_of)
def test_no_error_is_swallowed(path):
    """Swallowing is `pass` under a broad except, a bare except, or `suppress(Exception)`."""
    for node in nodes(path):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"bare except in line {node.lineno}"
            broad = ast.unparse(node.type) in ("Exception", "BaseException")
            silent = all(isinstance(statement, ast.Pass | ast.Continue) for statement in node.body)
            assert not (broad and silent), f"line {node.lineno}"
        if isinstance(node, ast.Call) and called(node) in ("suppress", "contextlib.suppress"):
            assert "Exception" not in [ast.unparse(argument) for argument in node.args]


def test_readers_name_no_metric():
    """A reader knows bytes and no names: M containers + N frameworks, never M × N."""
    from ppo_doctor.metrics import METRICS

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
OPENS_ITS_OWN = {"docs", "report.html_frame", "opening", "compiled", "ingest.forms", "ingest.hints"}


def test_files_of_others_are_opened_in_one_place():
    """Of a device or a pipe `open` may never come back; see `opening`."""
    found = set()
    for path in MODULES:
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _opens_to_read(node) and name not in OPENS_ITS_OWN:
                found.add(f"{name}:{node.lineno}")
    assert not found


def _opens_to_read(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    modes = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    whole = call.func.attr in ("read_bytes", "read_text") and not call.args
    return whole or (call.func.attr == "open" and modes in (["r"], ["rb"]))
