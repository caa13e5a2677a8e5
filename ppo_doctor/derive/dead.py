"""Settings that nothing reads: what a configuration asks for and no trainer ever does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Setting

#: Frameworks that read a one-sided clip range only under a switch or where the two-sided names are unset.
VERL, ROLL = "verl", "roll"
#: What verl's clip range is unless somebody changes it (verl/trainer/config/actor/actor.yaml).
VERL_CLIP = 0.2
#: Coefficients that stand in verl's own configuration beside a switch that is off, and are copied from there.
USUAL = {(VERL, "kl_loss_coef"): 0.001, (VERL, "kl_coef"): 0.001}


def clip_range_gap(observations: Observations) -> Fact | None:
    """Return how far a clip range that is given is from the one that the loss reads, under another name of the file."""
    if observations.run.framework == VERL:
        return _overruled_in_verl(observations)
    if observations.run.framework == ROLL:
        return _switched_off_in_roll(observations)
    return None


def _overruled_in_verl(observations: Observations) -> Fact | None:
    """The loss reads clip_ratio_low and clip_ratio_high where they are set, and clip_ratio only where they are not."""
    unread, low = _found(observations, "clip_range_unused"), _found(observations, "clip_range")
    if unread is None or low is None or low.key == unread.key:
        return None
    high = observations.run.config.get("clip_range_high")
    live = [setting for setting in (low, high) if setting is not None]
    gap = _gap(unread, live)
    if gap is None:
        return None
    if unread.value == VERL_CLIP or not gap:
        return _fact("clip_range_gap", 0.0, unread, f"{_shown(unread)} agrees with what the loss reads")
    read = " and ".join(_shown(setting) for setting in live)
    return _fact("clip_range_gap", gap, unread, f"{_shown(unread)} is not read, for {read}")


def _switched_off_in_roll(observations: Observations) -> Fact | None:
    """Return whether the two-sided range is given and its switch is off."""
    one, switch = observations.run.config.get("clip_range"), observations.run.config.get("use_clip_range")
    sides = [s for name in ("clip_range_unused", "clip_range_high") if (s := _found(observations, name)) is not None]
    if not sides or one is None or switch is None:
        return None
    dead = [(gap, side) for side in sides if (gap := _gap(side, [one]))]
    if switch.value or not dead:
        return _fact("clip_range_gap", 0.0, sides[0], "the range that is given is the one that is read")
    says = f"{' and '.join(_shown(side) for _, side in dead)} not read, for use_pg_clip_range is off: {_shown(one)} is"
    return _fact("clip_range_gap", max(gap for gap, _ in dead), dead[0][1], says)


def _gap(unread: Setting, live: Sequence[Setting]) -> float | None:
    """Return the least distance between a number that is not read and those that are; None where one is no number."""
    numbers = [setting.value for setting in (unread, *live)]
    if any(isinstance(value, bool | str | None) for value in numbers):
        return None
    first, *others = (float(str(value)) for value in numbers)
    return min(abs(first - other) for other in others)


def settings_without_effect(observations: Observations) -> Fact | None:
    """Return how many settings that were chosen nothing reads under the others; None without any to look at."""
    looked = [entry for look in _LOOKS for entry in look(observations)]
    if not looked:
        return None
    dead = [(setting, why) for setting, why in looked if why]
    says = "; ".join(f"{_shown(setting)}: {why}" for setting, why in dead) or "each of them is read"
    return _fact("settings_without_effect", float(len(dead)), (dead or looked)[0][0], says)


def _switched(switch: str, coefficient: str) -> Callable[[Observations], Iterator[tuple[Setting, str]]]:
    """Return a look at a coefficient behind a switch that the file turns off."""

    def look(observations: Observations) -> Iterator[tuple[Setting, str]]:
        turned, given = _found(observations, switch), _found(observations, coefficient)
        if turned is None or given is None or isinstance(given.value, bool | str) or not given.value:
            return
        if given.value == USUAL.get((observations.run.framework, coefficient)):
            return  # nobody chose it
        yield given, "" if turned.value else f"{turned.key} is off"

    return look


def _unapplied_norm(observations: Observations) -> Iterator[tuple[Setting, str]]:
    bound = _found(observations, "max_grad_norm_unused")
    if bound is not None:
        usual = bound.value in (None, 1.0)
        yield bound, "" if usual else "this trainer clips no gradient unless DeepSpeed does"


def _synced_reference(observations: Observations) -> Iterator[tuple[Setting, str]]:
    synced, coefficient = _found(observations, "sync_ref_model"), observations.run.config.get("kl_coef")
    if synced is not None and synced.value is True and coefficient is not None:
        yield synced, "" if coefficient.value else f"there is no reference model while {coefficient.key} is 0"


_LOOKS = (
    _switched("use_kl_loss", "kl_loss_coef"),
    _switched("use_kl_in_reward", "kl_coef"),
    _switched("use_kl_loss", "kl_target"),
    _unapplied_norm,
    _synced_reference,
)


def _found(observations: Observations, name: str) -> Setting | None:
    """Return a setting that was found, rather than a framework's default."""
    return observations.run.config.get(name) if observations.configured(name) else None


def _shown(setting: Setting) -> str:
    return f"{setting.key} = {setting.value}"


def _fact(name: str, value: float, setting: Setting, says: str) -> Fact:
    return Fact(name=name, value=value, how="configured", source=setting.source, says=says)
