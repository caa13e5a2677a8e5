"""Settings that hide in the metrics: coefficients and schedules that the log gives away without a configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside, median, quantile, same
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations

#: Epochs from which a schedule that is as many times too long is no coincidence; how near it has to be, for a record.
FEWEST_EPOCHS, NEAR = 3, 0.03
#: Records that must agree before a quotient of metrics counts as a coefficient.
LEAST = 5
#: Largest spread of such quotients, relative to their median; a fixed coefficient gives the same one in each record.
SPREAD = 0.05
#: Records that tell how a rate fell, and the share of them that may not rise.
TELLING, FALLING = 20, 0.9


def kl_coef_implied(observations: Observations) -> Fact | None:
    """Return the KL coefficient that turns the reference KL into the KL reward: -penalty / KL (TRL's PPO trainers).

    None where the quotient varies, as under an adaptive controller.
    """
    penalty = observations.run.series.get("kl_penalty_reward")
    kl = beside(penalty, observations.run.series.get("ref_kl"))
    if penalty is None or kl is None:
        return None
    known = np.isfinite(penalty.values) & np.isfinite(kl.values) & (np.abs(kl.values) > 1e-6)
    quotients = -penalty.values[known] / kl.values[known]
    if len(quotients) < LEAST or median(quotients) <= 0:
        return None
    middle = median(quotients)
    if median(np.abs(quotients - middle)) > SPREAD * middle:
        return None
    says = f"-{penalty.raw} / {kl.raw}, the same in {len(quotients)} records"
    return Fact(name="kl_coef_implied", value=middle, how="computed", source=penalty.source(), says=says)


def schedule_end_step(observations: Observations) -> Fact | None:
    """Return the step at which a linear decay of the learning rate reaches 0, from its slope over the second half."""
    rate = observations.run.series.get("learning_rate")
    if rate is None or len(rate) < 2 * LEAST:
        return None
    half = len(rate) // 2
    steps, values = rate.axis.steps[half:].astype(np.float64), rate.values[half:]
    if not np.isfinite(values).all() or values[0] <= values[-1] or steps[-1] <= steps[0] or values[-1] <= 0:
        return None
    if same(values[:1], values[-1]).all():
        return None
    slope = (values[-1] - values[0]) / (steps[-1] - steps[0])
    line = values[0] + slope * (steps - steps[0])
    if np.abs(line - values).max() > 1e-3 * float(values[0]):
        return None  # not a straight line: a cosine, or a controller
    end = float(steps[-1] - values[-1] / slope)
    says = f"{rate.raw} falls in a straight line and reaches 0 there"
    return Fact(
        name="schedule_end_step", value=round(end), how="computed", unit="step", source=rate.source(half), says=says
    )


def schedule_spans_epochs(observations: Observations) -> Fact | None:
    """Tell whether a linear decay of the learning rate is as many times longer than the run as a batch has epochs.

    Several: of two, half of the schedule may be meant.
    """
    end, epochs = observations.fact("schedule_end_step"), observations.number("ppo_epochs")
    last = (observations.run.steps or (0, 0))[1]
    if end is None or epochs is None or last <= 0 or not observations.configured("ppo_epochs"):
        return None
    runs = float(str(end.value)) / last
    spans = epochs >= FEWEST_EPOCHS and abs(runs - epochs) <= NEAR * epochs
    says = f"the rate would reach 0 at step {end.value}, which is {runs:.3g} times step {last}; epochs: {epochs:g}"
    return Fact(name="schedule_spans_epochs", value=float(spans), how="computed", source=end.source, says=says)


def kl_in_loss(observations: Observations) -> Fact | None:
    """Return loss / reference KL where it is the same in all records: the coefficient of the KL term, with its sign.

    At a ratio of 1 a centred surrogate is 0, and the KL term is all of the loss. None where the quotient varies.
    """
    loss = observations.run.series.get("loss")
    kl = beside(loss, observations.run.series.get("ref_kl"))
    if loss is None or kl is None:
        return None
    known = np.isfinite(loss.values) & np.isfinite(kl.values) & (np.abs(kl.values) > 1e-6)
    known &= np.abs(loss.values) > loss.resolution.absolute / SPREAD
    quotients = loss.values[known] / kl.values[known]
    if len(quotients) < TELLING // 2 or np.ptp(kl.values[known]) < abs(median(kl.values[known])) * SPREAD:
        return None  # a KL that never changes has a quotient with anything that never changes
    middle = median(quotients)
    if quantile(np.abs(quotients - middle), FALLING) > SPREAD * abs(middle):
        return None
    says = f"{loss.raw} / {kl.raw}, the same in {len(quotients)} records"
    return Fact(name="kl_in_loss", value=middle, how="computed", source=loss.source(), says=says)
