"""Find in the sources of a script where a setting gets its value, without running them."""

from __future__ import annotations

import ast
import linecache
import operator
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from ppo_doctor.record.script.places import Place

#: A number, a truth, or the last name of a constant such as `torch.bfloat16`.
Literal = float | bool | str
#: How many assignments and calls are followed from a name to the names that it comes from.
ROUNDS = 3
#: Relative difference of two spellings of one number.
ROUNDING = 1e-3
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_LENGTH = re.compile(r"(?i)step|total|iter|update|horizon|epoch")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = Function | ast.Module


@lru_cache(maxsize=256)
def parsed(file: str) -> ast.Module | None:
    """Return the syntax tree of a source file without running it, None if it cannot be parsed."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def name_of(node: ast.AST) -> str:
    """Return the name of a variable, or the last name of an attribute."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


@lru_cache(maxsize=256)
def walked(file: str) -> tuple[ast.AST, ...]:
    """Return all nodes of a source file from its root on, from one walk that everything that is looked for shares."""
    tree = parsed(file)
    return tuple(ast.walk(tree)) if tree is not None else ()


@lru_cache(maxsize=256)
def functions(file: str) -> tuple[Function, ...]:
    """Return the functions and methods of a source file."""
    return tuple(node for node in walked(file) if isinstance(node, Function))


@lru_cache(maxsize=256)
def calls(file: str) -> tuple[ast.Call, ...]:
    """Return the calls of a source file."""
    return tuple(node for node in walked(file) if isinstance(node, ast.Call))


@dataclass(frozen=True, slots=True)
class Given:
    """What a name is given: by assignment, as a key, an option, an argument or its default.

    `reads` is the name of a variable or of a called function that it is given, `names` are all in the expression.
    """

    name: str
    place: Place
    value: Literal | None
    reads: str
    names: frozenset[str]
    kind: type[ast.expr]


@lru_cache(maxsize=8)
def givens(files: tuple[str, ...]) -> tuple[Given, ...]:
    """Return what the names in some files are given."""
    parameters = {name: names for file in files for name, names in _parameters(file)}
    found = []
    for file in files:
        for node in walked(file):
            named = [*_given(node), *_positional(node, parameters)]
            found += [_of(name, value, file) for name, value in named if name]
    return tuple(found)


def _of(name: str, value: ast.expr, file: str) -> Given:
    reads = _reads(value.func if isinstance(value, ast.Call) else value)
    place = Place(file, value.lineno, "")
    return Given(_plain(name), place, literal(value), reads, frozenset(names_in([value])), type(value))


def _plain(name: str) -> str:
    return name.lstrip("-_").replace("-", "_").rpartition(".")[2]


def _parameters(file: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the parameters of each function, and of each class the fields or those of `__init__`."""
    for node in walked(file):
        if isinstance(node, Function):
            yield node.name, [each.arg for each in node.args.args if each.arg not in ("self", "cls")]
        elif isinstance(node, ast.ClassDef):
            fields = [name_of(each.target) for each in node.body if isinstance(each, ast.AnnAssign)]
            made = [each for each in node.body if isinstance(each, Function) and each.name == "__init__"]
            yield node.name, [each.arg for each in made[0].args.args[1:]] if made else fields


def _positional(node: ast.AST, parameters: dict[str, list[str]]) -> list[tuple[str, ast.expr]]:
    if not isinstance(node, ast.Call) or any(isinstance(each, ast.Starred) for each in node.args):
        return []
    return list(zip(parameters.get(name_of(node.func), []), node.args, strict=False))


def _given(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """Return the names that a node gives values, with the expressions of these."""
    if isinstance(node, ast.Assign):
        return [pair for target in node.targets for pair in _assigned(target, node.value)]
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return [(name_of(node.target), node.value)]
    if isinstance(node, ast.Call):
        return _arguments(node)
    if isinstance(node, _SCOPES):
        names = [argument.arg for argument in node.args.args]
        last = zip(names[len(names) - len(node.args.defaults) :], node.args.defaults, strict=True)
        only = zip((each.arg for each in node.args.kwonlyargs), node.args.kw_defaults, strict=True)
        return [(name, value) for name, value in (*last, *only) if value is not None]
    if isinstance(node, ast.Dict):
        return [(_text(key), value) for key, value in zip(node.keys, node.values, strict=True)]
    return _options(node.elts) if isinstance(node, ast.List | ast.Tuple) else []


def _assigned(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr]]:
    if isinstance(target, ast.Tuple | ast.List):
        if not isinstance(value, ast.Tuple | ast.List) or len(target.elts) != len(value.elts):
            return [(name_of(each), value) for each in target.elts]
        return [pair for each, part in zip(target.elts, value.elts, strict=True) for pair in _assigned(each, part)]
    return [(_text(target.slice) if isinstance(target, ast.Subscript) else name_of(target), value)]


def _arguments(node: ast.Call) -> list[tuple[str, ast.expr]]:
    """Return the arguments of a call; the default of an option has the option's name, if it is the first argument."""
    named = [(keyword.arg or "", keyword.value) for keyword in node.keywords]
    options = [text for each in node.args if (text := _text(each)).startswith("-")]
    if options:
        named = [(max(options, key=len) if name == "default" else name, value) for name, value in named]
    return named + [(name_of(node.func), value) for value in node.args]


def _options(elements: list[ast.expr]) -> list[tuple[str, ast.expr]]:
    """Return the options of a command line in a list: `["--lr", "0.1"]`, `["--lr=0.1"]`."""
    found: list[tuple[str, ast.expr]] = []
    for n, each in enumerate(elements):
        name, joined, text = _text(each).partition("=")
        if name.startswith("--") and joined:
            found.append((name, ast.copy_location(ast.Constant(text), each)))
        elif name.startswith("--") and n + 1 < len(elements):
            found.append((name, elements[n + 1]))
    return found


def _text(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def literal(node: ast.expr) -> Literal | None:
    """Return the value of a number, a truth or a named constant, also where it is computed from numbers or quoted."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            try:
                return float(node.value)
            except ValueError:
                return node.value
        return node.value if isinstance(node.value, bool) else _float(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = literal(node.operand)
        return -number if isinstance(number, float) else None
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = literal(node.left), literal(node.right)
        if isinstance(left, float) and isinstance(right, float) and (right or not isinstance(node.op, ast.Div)):
            return float(_OPERATORS[type(node.op)](left, right))
    return None


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _same(value: Literal | None, wanted: Literal) -> bool:
    if type(value) is float and type(wanted) is float:
        return abs(value - wanted) <= ROUNDING * abs(wanted)
    return type(value) is type(wanted) and value == wanted


def names_in(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names, attributes and keys that expressions read."""
    found = set()
    for node in nodes:
        for each in ast.walk(node):
            found.add(_text(each.slice) if isinstance(each, ast.Subscript) else name_of(each))
    return {_plain(each) for each in found} - {""}


def names_at(place: Place) -> set[str]:
    """Return the names that the calls of a line read, those of the whole statement if no call begins there."""
    here: list[ast.AST] = [call for call in calls(place.file) if call.lineno == place.line]
    statements = (node for node in walked(place.file) if isinstance(node, ast.stmt) and holds(node, place.line))
    return names_in(here or [*statements][-1:])


def passed_at(place: Place, keywords: Collection[str]) -> frozenset[str]:
    """Return the names in a keyword argument of the call that begins at a line."""
    here = [call for call in calls(place.file) if call.lineno == place.line]
    return frozenset(names_in(each.value for call in here for each in call.keywords if each.arg in keywords))


def come_from(files: tuple[str, ...], names: Collection[str]) -> set[str]:
    """Return names with those that they are computed from, over a few assignments and calls."""
    found = set(names)
    for _ in range(ROUNDS):
        found |= set().union(*(each.names for each in givens(files) if each.name in found))
    return found


def set_to(files: tuple[str, ...], value: Literal, used: Collection[str], names: re.Pattern[str]) -> list[Given]:
    """Return where names get a value: first those that are used and that fit, then used ones, then those that fit."""
    wanted = float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    same = [each for each in givens(files) if _same(each.value, wanted)]
    ranks = [((each.name not in used) * 2 - (names.search(each.name) is not None), each) for each in same]
    return [each for rank, each in sorted(ranks, key=lambda pair: pair[0]) if rank < 2]


def passed_on(files: tuple[str, ...], name: str, names: re.Pattern[str]) -> list[Place]:
    """Return where a name of one kind is given what another name holds: `clip_range=args.eps`."""
    return [each.place for each in givens(files) if names.search(each.name) and each.reads == name]


def named_again(files: tuple[str, ...], name: str, value: str) -> Place | None:
    """Return where a name is given what another one holds (`old = policy`), maybe by way of a third name."""
    given = [each for each in givens(files) if each.name == _plain(name)]
    through = {each.reads for each in given if each.kind is ast.Name}
    given += [each for each in givens(files) if each.name in through]
    return next((each.place for each in given if _plain(value) in each.names), None)


def _reads(node: ast.expr) -> str:
    return _plain(_text(node.slice) if isinstance(node, ast.Subscript) else name_of(node))


@lru_cache(maxsize=32)
def used_as(files: tuple[str, ...], name: str, purpose: re.Pattern[str]) -> list[Place]:
    """Return where a name is in the arguments of a call, or the value of a keyword, of a certain name."""
    found = []
    for file in files:
        for node in walked(file):
            if isinstance(node, ast.Call) and purpose.search(name_of(node.func)):
                inner: list[ast.AST] = [*node.args, *node.keywords]
            elif isinstance(node, ast.keyword) and purpose.search(node.arg or ""):
                inner = [node.value]
            else:
                continue
            reads = (each for outer in inner for each in ast.walk(outer) if isinstance(each, ast.expr))
            found += [Place(file, each.lineno, "") for each in reads if _reads(each) == name]
    return found


def holds(node: ast.AST, line: int) -> bool:
    """Return whether a line is one of those of a node."""
    first: int = getattr(node, "lineno", 0)
    return first <= line <= (getattr(node, "end_lineno", None) or first)


def scope_at(file: str, line: int) -> Scope | None:
    """Return the innermost function around a line, the module outside of functions."""
    around = [function for function in functions(file) if holds(function, line)]
    return max(around, key=lambda function: function.lineno) if around else parsed(file)


def _scope_nodes(file: str, line: int) -> Iterable[ast.AST]:
    """Return the nodes of the innermost function around a line, those of the module outside of functions."""
    scope = scope_at(file, line)
    return walked(file) if scope is None or isinstance(scope, ast.Module) else ast.walk(scope)


def assigned_before(place: Place, names: Collection[str]) -> list[Place]:
    """Return the lines of a function before one of it that assign certain names, the latest first."""
    found = []
    for node in _scope_nodes(place.file, place.line):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.lineno < place.line:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(name_of(each) in names for target in targets for each in ast.walk(target)):
                found.append(Place(place.file, node.lineno, place.function))
    return sorted(found, key=lambda each: -each.line)


@lru_cache(maxsize=32)
def calls_of(files: tuple[str, ...], function: str) -> list[Place]:
    """Return the lines that call a function of this name; those in most loops of their function first."""
    found = []
    for file in files:
        for line in [call.lineno for call in calls(file) if name_of(call.func) == function]:
            inner = _scope_nodes(file, line)
            loops = sum(isinstance(each, ast.For | ast.While) and holds(each, line) for each in inner)
            found.append((loops, Place(file, line, getattr(scope_at(file, line), "name", ""))))
    return [place for _, place in sorted(found, key=lambda pair: -pair[0])]


@lru_cache(maxsize=32)
def mentions(files: tuple[str, ...], name: str) -> list[Place]:
    """Return the lines that use a name, apart from imports."""
    nodes = ((file, node) for file in files for node in walked(file) if isinstance(node, ast.expr))
    return [Place(file, node.lineno, "") for file, node in nodes if name_of(node) == name]


@lru_cache(maxsize=32)
def rates_assigned(files: tuple[str, ...]) -> list[tuple[Place, set[str]]]:
    """Return the lines that assign a learning rate of an optimizer (`group["lr"] = …`), with the names they read."""
    found = []
    for file in files:
        for node in walked(file):
            if isinstance(node, ast.Assign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(each, ast.Subscript) and _text(each.slice) == "lr" for each in targets):
                    function = scope_at(file, node.lineno)
                    found.append((Place(file, node.lineno, getattr(function, "name", "")), names_in([node.value])))
    return found


@lru_cache(maxsize=32)
def functions_given(files: tuple[str, ...], names: re.Pattern[str]) -> list[Place]:
    """Return the lines of functions that an argument of such a name is: where they return, or are called."""
    named = {_plain(function.name): (file, function) for file in files for function in functions(file)}
    found = []
    for each in givens(files):
        if not names.search(each.name):
            continue
        if each.kind is ast.Lambda:
            found.append(each.place)
        elif each.reads in named:
            file, function = named[each.reads]
            ends = [node.lineno for node in ast.walk(function) if isinstance(node, ast.Return)]
            found.append(Place(file, max(ends, default=function.lineno), function.name))
    return found


def horizons(files: tuple[str, ...], place: Place) -> list[Given]:
    """Return where lengths of training that a function at a line computes rates from are computed or passed to it."""
    starts = (node for node in walked(place.file) if isinstance(node, _SCOPES) and node.lineno == place.line)
    function = next(starts, None)
    if function is None:
        return []
    names = {name for name in names_in([function]) if _LENGTH.search(name)}
    given = [each for each in givens(files) if each.name in names and each.reads != each.name]
    outside = [each for each in given if each.place.file != place.file or not holds(function, each.place.line)]
    return [each for each in outside if each.kind is not ast.Constant]


def is_helper(place: Place) -> bool:
    """Return whether what a line is done to is chosen by the caller: by a parameter that it or a loop around reads."""
    function = scope_at(place.file, place.line)
    if not isinstance(function, Function) or function.name == "__init__":
        return False
    parameters = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)} - {"self", "cls"}
    around = [node for node in ast.walk(function) if isinstance(node, ast.For) and holds(node, place.line)]
    lines = [node for node in ast.walk(function) if isinstance(node, ast.Expr | ast.Assign) and holds(node, place.line)]
    return bool(parameters & names_in([*(node.iter for node in around), *lines]))
