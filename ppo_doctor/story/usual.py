"""Where sound runs usually keep a metric, as literature, definitions and a framework's defaults have it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from ppo_doctor.frameworks import of_settings
from ppo_doctor.frameworks.settings import IN_FORCE
from ppo_doctor.model.frozen import frozen
from ppo_doctor.story.numbers import short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import Run


@frozen(kw_only=False)
class Usual:
    """A range, with where it comes from; without bounds it only says what a framework sets."""

    low: float | None
    high: float | None
    source: str

    def __str__(self) -> str:
        """Return the range as it is printed."""
        if self.low is None or self.high is None:
            return self.source
        return short(self.low) if self.low == self.high else f"{short(self.low)}–{short(self.high)}"

    def remark(self, values: Sequence[float | None]) -> str:
        """Return on which side a metric ends, if it is outside, and whether it is so at all moments."""
        known = [value for value in values if value is not None]
        sides = [self._side(value) for value in known]
        if not sides or not sides[-1]:
            return ""
        return sides[-1] if set(sides) == {sides[-1]} else f"ends {sides[-1]}"

    def _side(self, value: float) -> str:
        room = TOLERANCE * max(abs(self.low or 0), abs(self.high or 0), LEAST)
        if self.high is not None and value > self.high + room:
            return "above"
        return "below" if self.low is not None and value < self.low - room else ""


#: What is outside by less than this share of a bound, or of the least number that it can be a share of, is not outside.
TOLERANCE, LEAST = 0.02, 0.01
_DETAILS = "Huang et al. 2022, The 37 Implementation Details of PPO"
_SPINNING_UP = "OpenAI Spinning Up, PPO: target_kl 0.01 to 0.05, stopping at 1.5 times of it"
_DEFINITION = "by definition"
USUAL = MappingProxyType(
    {
        "approx_kl": Usual(0.001, 0.03, f"{_DETAILS}: usually below 0.02; {_SPINNING_UP}"),
        "clip_fraction": Usual(
            0.01, 0.3, "practice; nineteen of twenty sound runs of ten trainers have less than 0.33 in the median"
        ),
        "explained_variance": Usual(0.0, 1.0, f"{_DEFINITION}: 0 is as good as a constant, 1 is perfect"),
        "ratio_mean": Usual(1.0, 1.0, f"{_DEFINITION}: its expectation under the old policy is 1"),
        "rollout_ratio_mean": Usual(1.0, 1.0, f"{_DEFINITION}: sampler and trainer give the same probabilities"),
        "advantages_mean": Usual(0.0, 0.0, f"{_DEFINITION}, where advantages are normalised"),
        "advantages_std": Usual(1.0, 1.0, f"{_DEFINITION}, where advantages are normalised"),
    }
)
#: Where each batch is used for one optimizer step, every log-prob is the stored one.
_ONCE = f"{_DEFINITION}: one update per batch"
USUAL_ONCE = MappingProxyType({"approx_kl": Usual(0.0, 0.0, _ONCE), "clip_fraction": Usual(0.0, 0.0, _ONCE)})
SETTINGS = MappingProxyType({metric: setting for setting, metric in IN_FORCE.items()})


def usual(run: Run, metric: str, updates: float | None) -> Usual | None:
    """Return where a metric of a run with so many updates per batch usually lies; None where nobody says."""
    if metric in SETTINGS:
        profile = of_settings(run.framework)
        default = profile.defaults.get(SETTINGS[metric]) if profile is not None else None
        return Usual(None, None, f"default {short(default)}") if isinstance(default, float) else None
    if metric.startswith("advantages") and not _normalised(run):
        return None
    return {**USUAL, **(USUAL_ONCE if updates == 1 else {})}.get(metric)


def _normalised(run: Run) -> bool:
    held = run.config.get("normalize_advantages")
    return held is not None and held.value is True
