"""A rule to start from: a whole TOML file with cases that pass, in a pack that is made where there is none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.rulepack import Pack, load_pack

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")
_PACK = """# A rule pack: rules in folders of their own, causes in causes/, changes to other packs in overrides.toml.
name = "{name}"
title = "Rules of {name}"
# Rules of other packs that must not run: retire = ["RULE"]
"""
_RULE = """# Replace what stands here by what your rule finds; docs/authoring.md tells how. Until a cause weighs it, by
# a [[weight]] in causes/ID.toml or in overrides.toml, it is told among the checks and changes no verdict.
code = "{code}"
name = "{name}"
title = "Most samples of the later updates are clipped"
pass_title = "Few samples are clipped"
link = "ratio"
severity = "low"
not_when_single_update = true

[params.clipped]
value = 0.5
unit = "fraction of samples"
source = "expert: say here where your number comes from"

[[when]]
quantity = "series.clip_fraction"
is = "above"
bound = "@clipped"
share = 0.9
window = "tail"
least = 0.3

[doc]
what = "Finds the update from which more than the given fraction of samples is clipped in nine of ten updates."
why = "Say what it costs the run."
look_alikes = ["Say what looks the same and is none."]
blind_spots = ["Say what this rule cannot see."]
next_steps = ["Say what to try first."]
references = ["Say where one can read about it."]

# 0.1x9 is a value and nine repeats; 0.1+0.02x9 adds 0.02 nine times; _ is a missing record.
[[case]]
name = "the later updates are clipped"
kind = "positive"
series = {{ clip_fraction = "0.1x9 0.55x19" }}
expect = {{ status = "fired", onset = 10 }}

[[case]]
name = "not quite as many"
kind = "near-miss"
series = {{ clip_fraction = "0.1x9 0.45x19" }}
expect = {{ status = "clear" }}

[[case]]
name = "a few updates that the run recovers from"
kind = "benign"
series = {{ clip_fraction = "0.1x9 0.55x3 0.1x15" }}
expect = {{ status = "clear" }}

[[case]]
name = "the clip fraction is not logged"
kind = "missing"
series = {{ approx_kl = "0.01x29" }}
expect = {{ status = "skipped" }}
"""


def new_rule(name: str, folder: Path, extra: Iterable[Path] = ()) -> list[Path]:
    """Write a rule of this name into a pack and return the files written; the pack is made where there is none.

    Raises:
        DoctorError: the name is taken or is none, or the files cannot be written (exit code 2).
    """
    if not _NAME.match(name):
        hint = "small letters, digits and hyphens: entropy-collapses-late"
        raise DoctorError(f"'{name}' cannot name a rule", hint=hint, code=ExitCode.USAGE)
    known = (folder / "pack.toml").is_file()
    pack = load_pack([*extra, *([folder] if known else [])])
    for taken in (pack.rule(name), pack.cause(name)):
        if taken is not None:
            raise DoctorError(f"'{name}' is taken", hint=taken.path, code=ExitCode.USAGE)
    mine = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "mine"
    texts = {folder / mine / f"{name}.toml": _RULE.format(code=_code(mine, pack), name=name)}
    if not known:
        texts = {folder / "pack.toml": _PACK.format(name=mine)} | texts
    return [_write(path, text) for path, text in texts.items()]


def _code(mine: str, pack: Pack) -> str:
    """Return the first code that is free: letters of the pack's name and a number."""
    letters = re.sub(r"[^A-Z]", "", mine.upper())[:4].ljust(2, "X")
    taken = {rule.code for rule in pack.rules}
    return next(code for number in range(1, 1000) if (code := f"{letters}{number:03}") not in taken)


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:  # never over what somebody wrote
            file.write(text)
    except OSError as error:
        raise DoctorError(f"{path}: cannot write: {error.strerror}", code=ExitCode.USAGE) from error
    return path
