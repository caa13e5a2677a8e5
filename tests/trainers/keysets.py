"""Key sets of logs, by framework and version; see keysets.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class KeySet:
    name: str
    profile: str
    keys: tuple[str, ...]
    version: str = ""
    algorithm: str = ""

    def __str__(self) -> str:
        return self.name


@cache
def keysets() -> tuple[KeySet, ...]:
    raw = tomllib.loads(Path(__file__).with_name("keysets.toml").read_text(encoding="utf-8"))["log"]
    return tuple(KeySet(**{**log, "keys": tuple(log["keys"])}) for log in raw)
