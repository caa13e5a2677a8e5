"""What each answer to a check weighs for a cause: its words against how often sound runs answer so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ppo_doctor.model import PROOF_DB, RULED_OUT_DB, WORDS, Weight

#: Share of sound runs taken for a check that none of them answers, and the least for one that they do.
UNKNOWN_RATE, LEAST_RATE = 0.02, 0.005
#: Runs that the share of an unanswered check counts as.
PSEUDO_RUNS = 10
#: The word whose absence speaks against a cause; what is only sometimes there is missed by nobody.
SILENT_TELLS = "usual"


def sound_share(yes: int, of: int) -> float:
    """Return how often sound runs answer with yes; that none did among a few is no proof that none ever does."""
    return max(LEAST_RATE, (yes + UNKNOWN_RATE * PSEUDO_RUNS) / (of + PSEUDO_RUNS))


def weights_of(raw: Mapping[str, Any], rates: Mapping[str, float]) -> tuple[Weight, ...]:
    """Return what each answer weighs for a cause: the words of its file against how often sound runs answer so."""
    told = {weight["finding"]: Weight(**weight) for weight in raw.get("weight", ())}
    words = {**raw, "usual": (*raw.get("requires", ()), *raw.get("usual", ()))}  # what has to be is usual
    for word, often in WORDS.items():
        for name in words.get(word, ()):
            sound = rates.get(name, UNKNOWN_RATE)
            fired, clear = _decibans(often / sound), _decibans((1 - often) / (1 - sound))
            clear = clear if word == SILENT_TELLS else 0
            told[name] = Weight(finding=name, fired=fired, clear=clear, source=word)
    for word, sign in (("proof", PROOF_DB), ("excludes", RULED_OUT_DB)):
        for name in raw.get(word, ()):
            told[name] = replace(told.get(name, Weight(finding=name)), fired=sign, source=word)
    for name in raw.get("requires", ()):
        told[name] = replace(told.get(name, Weight(finding=name)), clear=RULED_OUT_DB, source="requires")
    return tuple(told.values())


def _decibans(odds: float) -> int:
    return round(10 * math.log10(odds))
