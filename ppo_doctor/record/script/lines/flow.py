"""Follow names through the syntax of a script: the lines that chose samples, and the loops around a line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from ppo_doctor.record.script.lines.sources import Function, Scope, functions, holds, name_of, scope_at, walked
from ppo_doctor.record.script.places import Place, Stack

#: Statements that are looked at from one line on.
FARTHEST = 40
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
#: Functions that pass on what they iterate over.
_WRAPPERS = frozenset(("enumerate", "zip", "tqdm", "iter"))
#: Functions and methods of tensors that change no value.
_SHAPES = frozenset(("view", "reshape", "unsqueeze", "squeeze", "flatten", "float", "to", "tensor", "stack", "t"))
#: Methods of tensors that, unlike those of a network or a buffer, compute with the values of their object.
_VALUES = frozenset(("clamp", "index_select", "gather", "split", "chunk", "mean", "sum", "repeat_interleave", "expand"))
#: Methods of patterns, which find nothing if a pattern never fits.
_MATCHING = frozenset(("findall", "finditer", "search", "match", "fullmatch"))
#: Functions whose results can be iterated over again.
_KEPT = frozenset(("list", "tuple", "sorted", "range"))


@dataclass(frozen=True, slots=True)
class Spot:
    """A statement in a function, and the calls that led there, the innermost first; the first is in this function."""

    file: str
    scope: Scope
    statement: ast.stmt
    calls: Stack = ()

    def place(self) -> Place:
        """Return the line of the statement."""
        return Place(self.file, self.statement.lineno, getattr(self.scope, "name", "<module>"))


def spot_of(calls: Stack) -> Spot | None:
    """Return the statement of the innermost call of a stack, None if there is no source."""
    if not calls:
        return None
    code, line = calls[0]
    scope = scope_at(code.co_filename, line)
    statement = _last(each for each in _statements(scope) if holds(each, line)) if scope is not None else None
    return None if scope is None or statement is None else Spot(code.co_filename, scope, statement, calls)


def common(calls: Stack, others: Stack) -> Stack:
    """Return a stack from its innermost frame on that is also in another one, none if they share no frame."""
    codes = {code for code, _ in others}
    return next((calls[n:] for n, (code, _) in enumerate(calls) if code in codes), ())


def chosen_at(spot: Spot, files: Sequence[str]) -> Spot | None:
    """Return the statement that made the index by which a statement takes samples, or the batch that it gets.

    The index is followed as far as the innermost loop around the statement, and into generators of the script.
    """
    for each in _upstream(spot, files):
        if any(inside for _, inside in _uses(each.statement)):
            found = _index_of(each)
            entered = _entered(found, files)
            return found if entered is found else _index_of(entered)
        if each is not spot and isinstance(each.statement, ast.For | ast.AsyncFor):
            return each
    return None


def reward_at(files: Sequence[str]) -> Spot | None:
    """Return what a function returns that the script passes to a trainer as its reward."""
    keywords = [node for file in files for node in walked(file) if isinstance(node, ast.keyword) and _rewards(node)]
    names = {part.id for each in keywords for part in ast.walk(each.value) if isinstance(part, ast.Name)}
    for file in files:
        for function in functions(file):
            if function.name in names:
                returned = _last(each for each in _statements(function) if isinstance(each, ast.Return))
                return None if returned is None else Spot(file, function, returned)
    return None


def matched_at(spot: Spot, files: Sequence[str]) -> Spot | None:
    """Return the statement by which the function of another, or one that it calls, looks for a pattern in text."""
    called = _called(spot.scope)
    helpers = [(file, each) for file in files for each in functions(file) if each.name in called]
    for file, scope in ((spot.file, spot.scope), *helpers):
        found = _last(each for each in _statements(scope) if _MATCHING & _called(each))
        if found is not None:
            return Spot(file, scope, found)
    return None


def skipped_at(files: Sequence[str]) -> Place | None:
    """Return the condition under which a method returns before it calls the one that it overrides."""
    for file in files:
        for each in functions(file):
            inherited = [call.lineno for call in ast.walk(each) if isinstance(call, ast.Call) and _inherits(call, each)]
            for first in each.body if inherited else ():
                if isinstance(first, ast.If) and isinstance(first.body[-1], ast.Return) and first.lineno < inherited[0]:
                    return Place(file, first.lineno, each.name)
    return None


def _inherits(call: ast.Call, function: Function) -> bool:
    """Return whether a call is `super().name(…)` in a method of this name."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return isinstance(owner, ast.Call) and (name_of(owner.func), name_of(call.func)) == ("super", function.name)


def _rewards(keyword: ast.keyword) -> bool:
    return (keyword.arg or "").startswith("reward")


def shaped_at(spot: Spot) -> list[Spot]:
    """Return the statements that gave the values that a statement uses their shape, then the one that made them."""
    found = list(islice(_upstream(spot, ()), 1, None))
    made = next((n for n, each in enumerate(found) if not _shapes_only(each.statement)), len(found))
    return found[: made + 1]


def data_at(spot: Spot, files: Sequence[str], outside: Iterable[int]) -> Spot | None:
    """Return the statement that made the data that a statement uses, or passed them to its function.

    It is outside the loops of the update: `outside` are lines that these do not hold.
    """
    for each in islice(_upstream(spot, files), 1, None):
        loops = loops_around(each.scope, each.statement.lineno, outside if each.file == spot.file else ())
        if _is_alias(each.statement) or isinstance(each.statement, _LOOPS):
            continue
        if not loops or 0 < len(each.calls) < len(spot.calls):
            return each
    return None


def loops_around(scope: Scope, line: int, outside: Iterable[int] = ()) -> list[ast.stmt]:
    """Return the loops in a function that run around a line and not around others, the outermost first."""
    around = [each for each in _statements(scope) if isinstance(each, _LOOPS) and each.body[0].lineno <= line]
    return [each for each in around if holds(each, line) and not any(holds(each, other) for other in outside)]


def left_early(spot: Spot, outside: Iterable[int]) -> ast.stmt | None:
    """Return the statement that leaves a loop around another statement in its first iteration, in any case.

    It is a `return`, or a `break` out of the outermost loop: one out of an inner loop may take one minibatch per pass.
    """
    line = spot.statement.lineno
    loops = loops_around(spot.scope, line, outside)
    for n, loop in enumerate(loops):
        if not isinstance(loop, ast.For | ast.AsyncFor) or any(
            isinstance(each, ast.Continue) for each in ast.walk(loop)
        ):
            continue
        for each in loop.body:
            if each.lineno > line and (isinstance(each, ast.Return) or (isinstance(each, ast.Break) and n == 0)):
                return each
    return None


def stopped_at(spot: Spot, fits: re.Pattern[str]) -> ast.If | None:
    """Return the condition on something with such a name under which the loops around a statement are left."""
    loops = loops_around(spot.scope, spot.statement.lineno)
    tests = [each for loop in loops[:1] for each in ast.walk(loop) if isinstance(each, ast.If)]
    leaving = [each for each in tests if any(isinstance(inner, ast.Return | ast.Break) for inner in each.body)]
    return next((each for each in leaving if fits.search(ast.unparse(each.test))), None)


def made_once(spot: Spot, outside: Iterable[int]) -> Spot | None:
    """Return the statement outside the loops around another that calls for what an inner one of them runs over."""
    loops = loops_around(spot.scope, spot.statement.lineno, outside)
    for loop in loops[1:]:
        if isinstance(loop, ast.For | ast.AsyncFor) and _calls_only(loop.iter, _WRAPPERS):
            made = [_definition(Spot(spot.file, spot.scope, loop), name) for name, _ in _used(loop.iter)]
            once = [each for each in made if each is not None and each.statement.lineno < loops[0].lineno]
            found = [
                each
                for each in once
                if isinstance(value := getattr(each.statement, "value", None), ast.Call)
                and name_of(value.func) not in _KEPT
            ]
            if found:
                return found[-1]
    return None


def factor_at(spot: Spot) -> Spot | None:
    """Return the call that passed what a statement divides or multiplies by, or where it got that."""
    products = [each for each in ast.walk(spot.statement) if isinstance(each, ast.BinOp)]
    factors = [each.right for each in products if isinstance(each.op, ast.Div | ast.Mult)]
    given = (_argument(spot, name) for each in factors for name, _ in _used(each))
    return next((each for each in given if each is not None), None)


def without_gradient_at(place: Place) -> Place | None:
    """Return the block without gradients (`with torch.no_grad():`) around a line, else such a decorator."""
    scope = scope_at(place.file, place.line)
    if scope is None:
        return None
    blocks = [each for each in _statements(scope) if isinstance(each, ast.With) and holds(each, place.line)]
    off = [each for each in blocks if any(_turns_off(item.context_expr) for item in each.items)]
    off = off[-1:] or [each for each in getattr(scope, "decorator_list", ()) if _turns_off(each)]
    return Place(place.file, off[0].lineno, getattr(scope, "name", "<module>")) if off else None


def made_without_gradient(spot: Spot, files: Sequence[str]) -> list[Place]:
    """Return the decorators and blocks without gradients of what a statement uses from its function."""
    used = [each for each in _upstream(spot, files) if each.scope is spot.scope]
    decorated = {
        each.name: Place(file, decorator.lineno, each.name)
        for file in files
        for each in functions(file)
        for decorator in each.decorator_list
        if _turns_off(decorator)
    }
    values = [value for each in used if isinstance(value := getattr(each.statement, "value", None), ast.expr)]
    called = [name_of(each.func) for value in values for each in ast.walk(value) if isinstance(each, ast.Call)]
    blocks = (without_gradient_at(each.place()) for each in used[1:])
    return [*(decorated[name] for name in called if name in decorated), *(each for each in blocks if each)]


def _turns_off(node: ast.expr) -> bool:
    name = name_of(node.func) if isinstance(node, ast.Call) else name_of(node)
    return name in ("no_grad", "inference_mode", "set_grad_enabled")


def _upstream(spot: Spot, files: Sequence[str]) -> Iterator[Spot]:
    """Yield a statement, those that define the names that it uses outside an index, and so on, the nearest first.

    Names that are given values in loops are followed alone if there are any: others do not change with the samples.
    """
    waiting, seen = [spot], {(spot.file, spot.statement.lineno)}
    for _ in range(FARTHEST):
        if not waiting:
            return
        each = waiting.pop(0)
        yield each
        names = [name for name, inside in _uses(each.statement) if not inside]
        found = [source for name in names if (source := _definition(each, name) or _argument(each, name)) is not None]
        found = [source for source in found if loops_around(source.scope, source.statement.lineno)] or found
        for source in (_entered(each, files) for each in found):
            key = source.file, source.statement.lineno
            waiting += [source] if key not in seen else []
            seen.add(key)


def _definition(spot: Spot, name: str) -> Spot | None:
    """Return the last statement before another that gives a name its value."""
    line = spot.statement.lineno
    made = _last(each for each in _statements(spot.scope) if each.lineno < line and name in _bound(each))
    return None if made is None else Spot(spot.file, spot.scope, made, spot.calls)


def _argument(spot: Spot, name: str) -> Spot | None:
    """Return the call that passed a parameter, or the definition of the name that it passed."""
    if isinstance(spot.scope, ast.Module):
        return None
    arguments = spot.scope.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    caller = spot_of(spot.calls[1:]) if name in {*names, *(each.arg for each in arguments.kwonlyargs)} else None
    if caller is None:
        return None
    calls = [each for each in ast.walk(caller.statement) if isinstance(each, ast.Call)]
    call = next((each for each in calls if name_of(each.func) == spot.scope.name), None)
    if call is None:
        return caller
    names = names[1:] if names[:1] == ["self"] else names
    given = dict(zip(names, call.args, strict=False)) | {each.arg: each.value for each in call.keywords if each.arg}
    passed = _label(given[name]) if name in given else ""
    return (_definition(caller, passed) or _argument(caller, passed) if passed else None) or caller


def _entered(spot: Spot, files: Sequence[str]) -> Spot:
    """Return the statement of a generator of the script that yields what a loop runs over, or the loop itself."""
    if not isinstance(spot.statement, ast.For | ast.AsyncFor):
        return spot
    called = _called(spot.statement.iter)
    for file in files:
        for function in functions(file):
            if function.name in called:
                for each in _statements(function):
                    if isinstance(each, ast.Expr) and isinstance(each.value, ast.Yield):
                        called_at = spot.calls[:1] and ((spot.calls[0][0], spot.statement.lineno),)
                        return Spot(file, function, each, (*called_at, *called_at, *spot.calls[1:]))
    return spot


def _index_of(spot: Spot) -> Spot:
    """Return the statement in the innermost loop that first made what a statement indexes by, or yields."""
    uses = _uses(spot.statement)
    names = {name for name, inside in uses if inside} or {name for name, _ in uses}
    made = [d for name in names if (d := _definition(spot, name)) is not None and _in_loop(d, spot)]
    return _first_in_loop(max(made, key=lambda found: found.statement.lineno)) if made else spot


def _first_in_loop(spot: Spot) -> Spot:
    """Follow the definition of an index to the first one in the same loop."""
    for _ in range(FARTHEST):
        if isinstance(spot.statement, _LOOPS):
            return spot
        earlier = [_definition(spot, name) for name, _ in _uses(spot.statement)]
        inside = [d for d in earlier if d is not None and _in_loop(d, spot) and not isinstance(d.statement, _LOOPS)]
        if not inside:
            return spot
        spot = inside[-1]
    return spot


def _in_loop(made: Spot, spot: Spot) -> bool:
    """Return whether a statement is in the innermost loop around another, or is this loop."""
    loops = loops_around(spot.scope, spot.statement.lineno)
    return bool(loops) and holds(loops[-1], made.statement.lineno)


def _shapes_only(statement: ast.stmt) -> bool:
    value = getattr(statement, "value", None)
    return isinstance(value, ast.expr) and _calls_only(value, _SHAPES | {"len", "int"})


def _called(node: ast.AST) -> set[str]:
    return {name_of(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)}


def _is_alias(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name)


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a function in their order, without those of functions and classes in it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if not isinstance(child, Function | ast.ClassDef | ast.expr):
            yield from _statements(child)


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names to which a statement gives values."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign | ast.For | ast.AsyncFor):
        targets = [statement.target]
    else:
        return set()
    names = [part for target in targets for part in ast.walk(target)]
    return {name for part in names if isinstance(getattr(part, "ctx", None), ast.Store) and (name := _label(part))}


def _label(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return ""


def _uses(statement: ast.stmt) -> list[tuple[str, bool]]:
    """Return the names that a statement reads, and whether within an index."""
    if isinstance(statement, ast.For | ast.AsyncFor):
        return _used(statement.iter)
    value = getattr(statement, "value", None)
    return _used(value) if isinstance(value, ast.expr) else []


def _used(node: ast.AST, inside: bool = False) -> list[tuple[str, bool]]:
    if name := _label(node):
        return [(name, inside)]
    if isinstance(node, ast.Subscript):
        return _used(node.value, inside) + _used(node.slice, True)
    if isinstance(node, ast.Lambda):
        return []
    parts: list[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call):
        method = node.func if isinstance(node.func, ast.Attribute) else None
        kept = method is not None and (
            not _label(method.value) or not (node.args or node.keywords) or method.attr in _SHAPES | _VALUES
        )
        parts = [*([method.value] if method is not None and kept else []), *node.args, *node.keywords]
    found = [use for part in parts for use in _used(part, inside)]
    own = {_label(part) for each in parts if isinstance(each, ast.comprehension) for part in ast.walk(each.target)}
    return [(name, within) for name, within in found if name not in own]


def _calls_only(node: ast.AST, names: frozenset[str]) -> bool:
    return all(name_of(each.func) in names for each in ast.walk(node) if isinstance(each, ast.Call))


def _last(statements: Iterable[ast.stmt]) -> ast.stmt | None:
    found = None
    for found in statements:  # noqa: B007
        pass
    return found
