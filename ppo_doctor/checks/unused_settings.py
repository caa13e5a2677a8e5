"""Settings without effect: overruled clip ranges, coefficients behind a switch, losses without a ratio, warm-up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ppo_doctor.checks.series import fact
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model.run import CONDITION, Fact
from ppo_doctor.trainers import detection

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import Setting


@statistic("clip_range_unused")
def clip_range_gap(view: RunView) -> Fact | None:
    """Return the difference between a configured clip range that has no effect and the one that the loss uses."""
    match detection.traits_of(view.run.framework).get("clip_range_read"):
        case "if no side is set":
            return _overruled_by_sides(view)
        case "if switched off":
            return _sides_switched_off(view)
    return None


def _overruled_by_sides(view: RunView) -> Fact | None:
    """Return the gap if clip_ratio is given but the loss reads clip_ratio_low and clip_ratio_high."""
    unread, low = view.given_setting("clip_range_unused"), view.given_setting("clip_range")
    if unread is None or low is None or low.key == unread.key:
        return None
    high = view.run.config.get("clip_range_high")
    live = [setting for setting in (low, high) if setting is not None]
    gap = _gap(unread, live)
    if gap is None:
        return None
    if unread.value == detection.profile(view.run.framework).template.get("clip_range_unused") or not gap:
        return fact(0.0, unread, f"{_shown(unread)} agrees with what the loss reads", how="configured")
    read = " and ".join(_shown(setting) for setting in live)
    return fact(gap, unread, f"{_shown(unread)} is not read, for {read}", how="configured")


def _sides_switched_off(view: RunView) -> Fact | None:
    """Return the gap if the two sides of the clip range are given but switched off."""
    one, switch = view.run.config.get("clip_range"), view.run.config.get("use_clip_range")
    sides = [s for name in ("clip_range_unused", "clip_range_high") if (s := view.given_setting(name)) is not None]
    if not sides or one is None or switch is None:
        return None
    dead = [(gap, side) for side in sides if (gap := _gap(side, [one]))]
    if switch.value or not dead:
        return fact(0.0, sides[0], "the range that is given is the one that is read", how="configured")
    says = f"{' and '.join(_shown(side) for _, side in dead)} not read, for use_pg_clip_range is off: {_shown(one)} is"
    return fact(max(gap for gap, _ in dead), dead[0][1], says, how="configured")


def _gap(unread: Setting, live: Sequence[Setting]) -> float | None:
    """Return the least distance between an unused number and those in use; None if one of them is no number."""
    numbers = [setting.value for setting in (unread, *live)]
    if any(isinstance(value, bool | str | None) for value in numbers):
        return None
    first, *others = (float(str(value)) for value in numbers)
    return min(abs(first - other) for other in others)


@statistic("use_kl_loss+kl_loss_coef")
def settings_without_effect(view: RunView) -> Fact | None:
    """Return the number of chosen settings that have no effect because of others; None if there are no candidates."""
    candidates = [entry for look in _LOOKS for entry in look(view)]
    if not candidates:
        return None
    dead = [(setting, why) for setting, why in candidates if why]
    says = "; ".join(f"{_shown(setting)}: {why}" for setting, why in dead) or "each of them is read"
    return fact(float(len(dead)), (dead or candidates)[0][0], says, how="configured")


def _switched(switch: str, coefficient: str) -> Callable[[RunView], Iterator[tuple[Setting, str]]]:
    """Return a function that yields a chosen coefficient, and why it has no effect if its switch is off."""

    def look(view: RunView) -> Iterator[tuple[Setting, str]]:
        turned, chosen = view.given_setting(switch), view.given_setting(coefficient)
        if turned is None or chosen is None or isinstance(chosen.value, bool | str) or not chosen.value:
            return
        trainer = detection.known_profile(view.run.framework)
        if trainer is not None and chosen.value == trainer.template.get(coefficient):
            return  # it is the trainer's template, not a choice
        yield chosen, "" if turned.value else f"{turned.key} is off"

    return look


def _unapplied_norm(view: RunView) -> Iterator[tuple[Setting, str]]:
    """Yield a bound of the gradient norm that the trainer does not apply; the usual value is no choice."""
    bound = view.given_setting("max_grad_norm_unused")
    if bound is not None:
        usual = bound.value in (None, 1.0)
        yield bound, "" if usual else "this trainer clips no gradient unless DeepSpeed does"


def _synced_reference(view: RunView) -> Iterator[tuple[Setting, str]]:
    """Yield the sync of a reference model, and that there is none if the KL coefficient is 0."""
    synced, coefficient = view.given_setting("sync_ref_model"), view.run.config.get("kl_coef")
    if synced is not None and synced.value is True and coefficient is not None:
        yield synced, "" if coefficient.value else f"there is no reference model while {coefficient.key} is 0"


_LOOKS = (
    _switched("use_kl_loss", "kl_loss_coef"),
    _switched("use_kl_in_reward", "kl_coef"),
    _switched("use_kl_loss", "kl_target"),
    _unapplied_norm,
    _synced_reference,
)


def _shown(setting: Setting) -> str:
    return f"{setting.key} = {setting.value}"


#: Losses whose ratio is 1 by definition, or for which the trainer logs a constant (verl core_algos.py: gpg).
WITHOUT_RATIO = ("reinforce", "reinforce++", "vanilla_pg", "pg", "gpg", "policy_gradient", "a2c")


@statistic("loss_type")
def loss_without_ratio(view: RunView) -> Fact | None:
    """Return 1 if the loss has no ratio, by the trainer or by the configured loss; 0 if another loss is configured."""
    framework = view.run.facts.get("no_ratio")
    forced = view.run.config.get("force_on_policy_ratio")
    if framework is not None:
        return fact(1.0, None, "this trainer's loss has no ratio", CONDITION, how="default")
    if forced is not None and forced.value is True:
        return fact(1.0, forced, f"{forced.key} is on", CONDITION, how=forced.how)
    named = view.run.config.get("loss_type")
    if named is None or named.how == "default":
        return None
    value = float(str(named.value).lower() in WITHOUT_RATIO)
    says = f"{named.key} = {named.value}"
    return fact(value, named, says, CONDITION, how=named.how)


@statistic("critic_warmup")
def warmup_left(view: RunView) -> Fact | None:
    """Return the configured critic warm-up over the updates that the log covers; from 1 on, no actor is trained."""
    warmup = view.given("critic_warmup")
    longest = max(view.run.series.values(), key=len, default=None)
    if not warmup or longest is None or not len(longest):
        return None
    # A warm-up is configured in updates, so these are used if the log counts them as well as environment steps.
    updates = longest.axis.update
    covered = float(longest.axis.steps[-1] if updates is None else updates[-1])
    setting = view.run.config["critic_warmup"]
    says = f"{setting.key} = {warmup:g}, and the log ends at update {covered:g}"
    value = warmup / max(covered, 1.0)
    return fact(value, setting, says, how=setting.how)
