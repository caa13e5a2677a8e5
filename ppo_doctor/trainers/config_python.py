"""Read settings of Python programs without running them, and of texts that contain printed settings or commands.

In programs, settings are literals in calls, argparse options, dataclasses and constants.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from ppo_doctor.model.literals import python_literal
from ppo_doctor.trainers.config_formats import (
    MOST_LINES,
    Scalar,
    UnreadableError,
    Written,
    lines_in,
    read_json,
    read_literal,
    value_of,
)

#: (dotted key, value, line).
Setting: TypeAlias = tuple[str, object, int]

#: Largest program in characters, and largest number of nodes of its tree that are examined.
LARGEST, MOST_NODES = 1 << 18, 200_000
#: Largest exponent and largest operand in arithmetic of literals.
MOST_POWER, LARGEST_NUMBER = 64, 1e18
#: Endings of names of classes and dicts that contain a run's settings as arguments, fields or items.
OF_SETTINGS = ("config", "args", "arguments", "params", "hparams", "hyperparameters", "settings", "cfg", "opts")
#: Endings of names of trainers, whose arguments are settings too.
TRAINERS = ("PPO", "GRPO", "RLOO", "A2C")
#: Keywords of calls that are no settings of a run.
NO_SETTINGS = frozenset({"help", "type", "action", "dest", "metavar", "choices", "nargs", "required", "default"})
_ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


class _NoLiteralError(Exception):
    """Raised for an expression that is not a literal."""


def read(text: str) -> Written:
    """Return the settings of a program, without names that have several values.

    Raises:
        UnreadableError: the text is not Python, larger than LARGEST, or has no setting.
    """
    if len(text) > LARGEST:
        raise UnreadableError(f"more than {LARGEST >> 10} KiB are too many for a script")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in the program
            tree = ast.parse(text)
    except SyntaxError as error:
        raise UnreadableError("it is no Python that we can parse", error.lineno) from error
    except (MemoryError, RecursionError, ValueError) as error:
        raise UnreadableError("it is nested too deeply, or no text") from error
    settings = _Program(tree).settings()
    if not settings:
        raise UnreadableError("it holds no setting as a literal")
    return Written(
        imports=tuple(_imports(tree)),
        values={key: value for key, (value, _) in settings.items()},
        lines={key: line for key, (_, line) in settings.items()},
    )


class _Program:
    """The constants and settings of one program."""

    def __init__(self, tree: ast.Module) -> None:
        self.nodes = [node for node, _ in zip(ast.walk(tree), range(MOST_NODES), strict=False)]
        self.top = list(_statements(tree.body))
        self.names: dict[str, object] = {}
        self.options: dict[str, object] = {}  # a default may name another option, which is then unknown
        self.options = {key: value for key, value, _ in self._options()}

    def settings(self) -> dict[str, tuple[object, int]]:
        """Return key → (value, line); the most reliable source wins: calls, options, fields, constants."""
        constants = list(self._constants())  # calls may refer to them
        settings: dict[str, tuple[object, int]] = {}
        for source in (self._calls(), self._options(), self._fields(), iter(constants)):
            first: dict[str, tuple[object, int]] = {}
            ambiguous: set[str] = set()
            for key, value, line in source:
                if key in first and first[key][0] != value:
                    ambiguous.add(key)
                first.setdefault(key, (value, line))
            settings |= {key: value for key, value in first.items() if key not in ambiguous and key not in settings}
        return settings

    def _value(self, node: ast.expr) -> object:
        """Return the value of a literal, of arithmetic with numbers, or of a name or option that is a constant.

        Raises:
            _NoLiteralError: the program would have to run to evaluate the expression.
        """
        if isinstance(node, ast.Constant):
            if node.value is None or isinstance(node.value, str | int | float | bool):
                return node.value
        elif isinstance(node, ast.List | ast.Tuple):
            return [self._value(each) for each in node.elts[:16]]
        elif isinstance(node, ast.Dict):
            return dict(self._items(node))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            value = self._number(node.operand)
            return -value if isinstance(node.op, ast.USub) else value
        elif isinstance(node, ast.BinOp):
            return self._computed(node)
        elif isinstance(node, ast.Name) and node.id in self.names:
            return self.names[node.id]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in self.options:
            return self.options[node.attr]
        raise _NoLiteralError

    def _number(self, node: ast.expr) -> int | float:
        value = self._value(node)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _NoLiteralError
        return value

    def _computed(self, node: ast.BinOp) -> int | float:
        left, right = self._number(node.left), self._number(node.right)
        compute = _ARITHMETIC.get(type(node.op))
        if compute is None or (isinstance(node.op, ast.Pow) and abs(right) > MOST_POWER):
            raise _NoLiteralError
        if max(abs(left), abs(right)) > LARGEST_NUMBER:
            raise _NoLiteralError
        try:
            value = compute(left, right)
        except (ArithmeticError, ValueError) as error:
            raise _NoLiteralError from error
        if isinstance(value, complex):
            raise _NoLiteralError
        return value

    def _items(self, node: ast.Dict) -> Iterator[tuple[str, object]]:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                try:
                    yield key.value, self._value(value)
                except _NoLiteralError:
                    continue

    def _setting(self, key: str, node: ast.expr | None, line: int) -> Iterator[Setting]:
        """Yield a setting if its expression is a literal."""
        if node is None:
            return
        try:
            yield key, self._value(node), line
        except _NoLiteralError:
            return

    def _calls(self) -> Iterator[Setting]:
        """Yield keyword arguments of calls: of configurations and trainers as they are, of others with a prefix."""
        targets = {id(node.value): node.targets[0] for node in self.nodes if isinstance(node, ast.Assign)}
        for node in self.nodes:
            name = _called(node.func) if isinstance(node, ast.Call) else ""
            if not isinstance(node, ast.Call) or not name or name in ("add_argument", "field", "print"):
                continue
            prefix = "" if _of_settings(name) else _prefix(name, targets.get(id(node)))
            for keyword in node.keywords:
                if keyword.arg is not None and keyword.arg not in NO_SETTINGS:
                    yield from self._setting(prefix + keyword.arg, keyword.value, keyword.value.lineno)
            if isinstance(node.func, ast.Attribute) and _called(node.func.value) == "optim":
                yield (
                    prefix + "optimizer",
                    name,
                    node.lineno,
                )  # torch.optim.SGD, whose learning rates differ from Adam's
            if name in TRAINERS and node.args and isinstance(node.args[0], ast.Constant):
                yield from self._setting("policy", node.args[0], node.args[0].lineno)

    def _options(self) -> Iterator[Setting]:
        """Yield argparse's options with their defaults."""
        for node in self.nodes:
            if not isinstance(node, ast.Call) or _called(node.func) not in ("add_argument", "add_flag"):
                continue
            keywords = {keyword.arg: keyword.value for keyword in node.keywords}
            names = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            long = next((name for name in names if name.startswith("--")), None)
            dest = keywords.get("dest")
            key = dest.value if isinstance(dest, ast.Constant) and isinstance(dest.value, str) else long
            if key is None:
                continue
            default = keywords.get("default")
            switch = keywords.get("action")
            if default is None and isinstance(switch, ast.Constant) and switch.value in ("store_true", "store_false"):
                yield _option(key), switch.value == "store_false", node.lineno
            yield from self._setting(_option(key), default, node.lineno)

    def _fields(self) -> Iterator[Setting]:
        """Yield the fields of classes with their defaults."""
        for node in self.nodes:
            if not isinstance(node, ast.ClassDef):
                continue
            prefix = "" if _of_settings(node.name) else f"{node.name}."
            for name, value in _assigned(node.body):
                if isinstance(value, ast.Call) and _called(value.func) == "field":
                    value = next((k.value for k in value.keywords if k.arg == "default"), None)  # noqa: PLW2901
                yield from self._setting(prefix + name, value, value.lineno if value is not None else node.lineno)

    def _constants(self) -> Iterator[Setting]:
        """Yield what is assigned at the top of the program or in its main function, and keep it for other values."""
        for name, node in _assigned(self.top):
            for _, value, line in self._setting(name, node, node.lineno if node is not None else 0):
                if name in self.names and self.names[name] != value:
                    self.names.pop(name)
                    continue
                self.names[name] = value
                if not isinstance(value, dict):
                    yield name, value, line
                    continue
                prefix = "" if _of_settings(name) else f"{name}."
                for key, inner in value.items():
                    yield prefix + key, inner, line


def _imports(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a program imports at its top, such as "trl.GRPOConfig"."""
    for node in _statements(tree.body):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements at the top of a program, those under `if`, and those of its functions `main` and `train`."""
    for node in body:
        yield node
        if isinstance(node, ast.If) or (isinstance(node, ast.FunctionDef) and node.name in ("main", "train")):
            yield from _statements(node.body)


def _assigned(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the names that statements assign, with their expressions."""
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.value
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Name):
                yield target.id, value
            elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                yield from ((t.id, v) for t, v in zip(target.elts, value.elts, strict=True) if isinstance(t, ast.Name))


def _called(function: ast.expr) -> str:
    """Return the last name of a called function: `PPO` of `sb3.PPO`."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _prefix(name: str, target: ast.expr | None) -> str:
    """Return the prefix of a call's arguments: the name it is assigned to, such as a critic's optimizer, or its own."""
    if isinstance(target, ast.Attribute):
        return f"{target.attr}."
    return f"{target.id}." if isinstance(target, ast.Name) else f"{name}."


def _of_settings(name: str) -> bool:
    """Return whether a class or dict of this name contains a run's settings, and not those of an adapter or engine."""
    lowered = name.lower()
    if lowered.startswith(("lora", "peft", "bitsandbytes", "quant", "deepspeed", "model", "eval", "vllm")):
        return False
    return lowered.endswith(OF_SETTINGS) or name.endswith(TRAINERS)


def _option(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


#: (key, value, line).
TextSetting = tuple[str, Scalar, int]

_CALL = re.compile(r"\b[A-Z]\w*\(\s*(?=[A-Za-z_]\w*\s*=)")
_ARGUMENT = re.compile(r"\s*(?P<key>[A-Za-z_]\w*)\s*=\s*(?P<value>.*)\Z", re.DOTALL)
#: A string, which may be unclosed at the end of the text, or a sign. Quantifiers are possessive, because backtracking
#: would take quadratic time on unclosed quotes.
_PART = re.compile(r"(?s)'(?:[^'\\]++|\\.)*+['\\]?|\"(?:[^\"\\]++|\\.)*+[\"\\]?|[()\[\]{},\n]")
_SIGN = re.compile(r"[()\[\]{},\n]")
#: `key: value`, `key = value`, `key ..... value` (Megatron), `| key | value |` (tables), `'key': value,` (pprint).
_LINE = re.compile(
    r"[\s|>*{'\"-]*(?P<key>[A-Za-z_][\w./-]*)['\"]?\s*(?:[:=]|\.{3,}|\|)\s*(?P<value>\"[^\"]*\"|'[^']*'|[^\s|,;#]+)\s*(?:[|,;]\s*)?(?:#.*)?\Z"
)
_OPTION = re.compile(
    r"(?<![\w-])--(?P<option>[A-Za-z][\w.-]*)(?:(?:=|\s+)(?P<given>\"[^\"]*\"|'[^']*'|(?!--)[^\s\\]+))?"
    r"|(?<!\S)\+{0,2}(?P<key>[A-Za-z_]\w*(?:\.\w+)*)=(?P<value>\"[^\"]*\"|'[^']*'|[^\s\\]*)"
)
_ASSIGNED = re.compile(r"\s*(?:export\s+)?(?P<name>[A-Za-z_]\w*)=(?P<value>\"[^\"]*\"|'[^']*'|[^\s;#]*)\s*(?:#.*)?\Z")
_VARIABLE = re.compile(r"\$\{(?P<braced>\w+)(?::-(?P<otherwise>[^{}]*))?\}|\$(?P<plain>\w+)")
#: A continued line of a command; assignments on other lines are then variables of the shell.
_CONTINUED = re.compile(r"\\[ \t]*\n")
#: Largest number of printed objects, and longest line and line of a command in characters.
MOST_CALLS, LONGEST_LINE, LONGEST_COMMAND = 20, 4096, 1 << 16
#: Fewest settings in a text; fewer are prose that happens to contain an equals sign.
FEWEST = 2


def read_text(text: str) -> Written:
    """Return the settings in plain text, read in the one of three forms that finds most.

    Raises:
        ValueError: fewer than FEWEST settings are found.
    """
    forms = [list(form(text)) for form in ((_options,) if _CONTINUED.search(text) else _FORMS)]
    best = max(forms, key=len)
    if len(best) < FEWEST:
        raise ValueError("it holds no settings that we can make out")
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for key, value, line in best[:MOST_LINES]:
        values[key], lines[key] = value, line
    kept = sum(1 for line in text.splitlines() if line.strip())
    return Written(values=values, lines=lines, other_lines=kept - len({line for _, _, line in best}))


def read_document(text: str) -> Written:
    """Return the settings of a JSON document, or of a printed Python dict with any text before and after it.

    Raises:
        ValueError: the text is neither.
    """
    begin, end = text.find("{"), text.rfind("}") + 1
    try:
        return read_json(text)
    except ValueError as error:
        try:
            written = read_literal(text[begin:end])
        except ValueError:
            raise error from None  # the error of the JSON parser has the line
    return Written(values=written.values, lines=lines_in(text[begin:end], text.count("\n", 0, begin) + 1))


def read_any(text: str) -> Written:
    """Return the settings of a document or of plain text, whichever has more of them.

    Raises:
        ValueError: the text is neither.
    """
    try:
        written = read_document(text)
    except (ValueError, RecursionError):
        return read_text(text)
    try:
        plain = read_text(text)
    except ValueError:
        return written
    return written if isinstance(written.values, dict) and len(written.lines) >= len(plain.lines) else plain


def _calls(text: str) -> Iterator[TextSetting]:
    """Yield the arguments in printed objects such as `Namespace(…)` and dataclasses."""
    position = 0
    for _ in range(MOST_CALLS):
        match = _CALL.search(text, position)
        if match is None:
            return
        position = match.end()
        for argument, at, end in _arguments(text, position, text.count("\n", 0, position) + 1):
            position = end
            parts = _ARGUMENT.match(argument)
            if parts is not None:
                skipped = argument[: parts.start("key")].count("\n")
                yield parts["key"], _literal(parts["value"].rstrip()), at + skipped


def _arguments(text: str, begin: int, line: int) -> Iterator[tuple[str, int, int]]:
    """Yield (text, line, end) of each argument of a call, up to its closing parenthesis."""
    depth, start, at = 0, begin, line
    for match in _parts(text, begin):
        part = match[0]
        line += part.count("\n")
        if part in "([{":
            depth += 1
        elif part in ")]}" and depth:
            depth -= 1
        elif part == ")" or (part == "," and not depth):
            yield text[start : match.start()], at, match.end()
            start, at = match.end(), line
            if part == ")":
                return


def _parts(text: str, begin: int) -> Iterator[re.Match[str]]:
    """Yield strings and signs; after an unclosed quote, only signs."""
    for match in _PART.finditer(text, begin):
        if match[0][0] in "'\"" and (len(match[0]) == 1 or match[0][-1] != match[0][0]):
            yield from _SIGN.finditer(text, match.start() + 1)
            return
        yield match


def _literal(text: str) -> Scalar:
    try:
        value = python_literal(text)
    except ValueError:
        return value_of(text)
    return value if value is None or isinstance(value, str | int | float | bool) else text


def _lines(text: str) -> Iterator[TextSetting]:
    """Yield settings that have a line each."""
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.match(line) if len(line) <= LONGEST_LINE else None
        if match is not None:
            value = match["value"] if "{" in match["value"] else match["value"].rstrip("}")
            yield match["key"], value_of(value), number


def _options(text: str) -> Iterator[TextSetting]:
    """Yield the options of a command and Hydra's overrides, with plain variables of the shell expanded."""
    variables: dict[str, str] = {}
    for number, whole in enumerate(text.splitlines(), start=1):
        line = whole[:LONGEST_COMMAND]
        if line.lstrip().startswith("#"):
            continue
        assigned = _ASSIGNED.match(line)
        if assigned is not None:
            variables[assigned["name"]] = _expanded(assigned["value"], variables).strip("\"'")
            continue
        for match in _OPTION.finditer(line):
            key = match["key"] or match["option"].replace("-", "_")
            value = match["value"] if match["key"] else match["given"]
            yield key, True if value is None else value_of(_expanded(value, variables)), number


def _expanded(text: str, variables: dict[str, str]) -> str:
    def known(match: re.Match[str]) -> str:
        name = match["braced"] or match["plain"]
        return variables.get(name, match["otherwise"] if match["otherwise"] is not None else match[0])[:1000]

    return _VARIABLE.sub(known, text[:LONGEST_LINE])


_FORMS: tuple[Callable[[str], Iterator[TextSetting]], ...] = (_calls, _options, _lines)
