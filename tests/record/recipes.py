"""Reads the recipes of docs/recorder.md, applies their diffs, and finds the real files where they are at hand."""

from __future__ import annotations

import ast
import builtins
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "recorder.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """Lines that stand in the file, and what they become; `added` counts from the first new line."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    added: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """A recipe that changes one file."""

    file: str
    hunks: tuple[Hunk, ...]

    def apply(self, source: str) -> tuple[str, set[int]]:
        """Return the changed file and the numbers of its added lines, from 1.

        Raises:
            LookupError: the lines around a change do not stand in the file, or do so twice.
        """
        lines, added = source.splitlines(), set[int]()
        for hunk in self.hunks:
            size = len(hunk.old)
            places = [n for n in range(len(lines) - size + 1) if tuple(lines[n : n + size]) == hunk.old]
            if len(places) != 1:
                raise LookupError(f"{self.file} has {len(places)} times:\n" + "\n".join(hunk.old))
            (place,), grown = places, len(hunk.new) - size
            lines[place : place + size] = hunk.new
            added = {n + grown if n > place + size else n for n in added} | {place + n + 1 for n in hunk.added}
        return "\n".join(lines) + "\n", added


def diff_of(file: str) -> Diff:
    """Return the page's diff of a file."""
    (found,) = (diff for diff in map(_diff, _blocks(PAGE.read_text(encoding="utf-8"), "diff")) if diff.file == file)
    return found


def code(section: str) -> str:
    """Return the code of a library's recipe."""
    recipes = PAGE.read_text(encoding="utf-8").split("\n## Recipes\n")[1]
    body = re.split(rf"\n### {section}[^\n]*\n", recipes)[1].split("\n### ")[0]
    (text,) = _blocks(body, "python")
    return text


def _blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def _diff(text: str) -> Diff:
    head, *rest = re.split(r"^@@\n", text, flags=re.MULTILINE)
    return Diff(file=head.removeprefix("--- ").strip(), hunks=tuple(_hunk(part) for part in rest))


def _hunk(text: str) -> Hunk:
    lines = text.splitlines()
    old = tuple(line[1:] for line in lines if not line.startswith("+"))
    kept = [line for line in lines if not line.startswith("-")]
    added = tuple(n for n, line in enumerate(kept) if line.startswith("+"))
    return Hunk(old=old, new=tuple(line[1:] for line in kept), added=added)


def real(file: str) -> str | None:
    """Return the text of a library's file, unpacked or installed; None where it is not at hand."""
    told = os.environ.get("PPO_DOCTOR_RECIPE_SOURCES")  # a folder with a folder for each package
    unpacked = [Path(told), *Path(told).iterdir()] if told else []
    for root in (*unpacked, *map(Path, sys.path)):
        if (root / file).is_file():
            return (root / file).read_text(encoding="utf-8")
    return None


def unbound(source: str, added: set[int]) -> set[str]:
    """Return the names that added lines use and neither their function, the module nor Python itself has."""
    tree = ast.parse(source)
    missing: set[str] = set()
    for scope in _innermost(tree, added):
        used = {n.id for n in ast.walk(scope) if isinstance(n, ast.Name) and n.lineno in added and _read(n)}
        missing |= used - _bound(scope) - _bound(tree) - set(dir(builtins))
    return missing


def _read(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _innermost(tree: ast.Module, added: set[int]) -> Iterator[ast.AST]:
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    for number in added:
        around = [f for f in functions if f.lineno < number <= (f.end_lineno or 0)]
        yield max(around, key=lambda f: f.lineno) if around else tree


def _bound(scope: ast.AST) -> set[str]:
    """Return what a function or a module binds: arguments, assignments, imports, definitions."""
    names = {n.id for n in ast.walk(scope) if isinstance(n, ast.Name) and not _read(n)}
    names |= {n.arg for n in ast.walk(scope) if isinstance(n, ast.arg)}
    names |= {n.name for n in ast.walk(scope) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    imports = (n for n in ast.walk(scope) if isinstance(n, ast.Import | ast.ImportFrom))
    return names | {(alias.asname or alias.name).split(".")[0] for each in imports for alias in each.names}


def parameters(source: str, function: str) -> list[list[str]]:
    """Return the parameters of every method or function of that name."""
    found = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef) and n.name == function]
    return [[a.arg for a in (*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs)] for f in found]
