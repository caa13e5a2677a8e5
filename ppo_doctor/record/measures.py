"""Statistics of one minibatch on the device of its tensors, by calls that torch, NumPy and JAX share."""

from __future__ import annotations

import importlib
import math
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

#: An array of torch, NumPy or JAX.
Tensor = Any
#: A model, an optimizer, a trainer or a logger of another library.
Foreign = Any
#: An array on the host.
Array = npt.NDArray[np.float64]


#: Columns of a row, in order; means are over unmasked samples, `_m2` are sums of squared deviations.
COLUMNS = (
    *("n", "dev_mean", "dev_m2", "dev_max", "dev_min", "k1", "k2", "k3", "low", "high", "positive", "negative"),
    *("adv_mean", "adv_m2", "adv_max", "adv_min", "log_mean", "log_m2", "log_adv"),
)

#: Largest distance of the ratio from 1 to both sides, or (below, above).
ClipRange = float | tuple[float, float] | None


def log_bounds(clip_range: ClipRange) -> tuple[float, float] | None:
    """Return the log-ratios at which clipping begins, None without a clip range."""
    if clip_range is None:
        return None
    below, above = clip_range if isinstance(clip_range, tuple | list) else (clip_range, clip_range)
    return (math.log1p(-below) if below < 1 else -math.inf), math.log1p(above)


def namespace(array: Tensor) -> Tensor:
    """Return the module of functions for an array, importing no library that is not in use."""
    root = type(array).__module__.partition(".")[0]
    if root == "torch":
        return sys.modules["torch"]
    if root in ("jax", "jaxlib"):
        return importlib.import_module("jax.numpy")
    return importlib.import_module("numpy")


def is_torch(array: Tensor) -> bool:
    """Return whether an array is a torch tensor."""
    return type(array).__module__.partition(".")[0] == "torch" or hasattr(array, "untyped_storage")


def plain(array: Tensor) -> Tensor:
    """Return an array without its graph; half precision and integers become float32."""
    if hasattr(array, "detach"):
        array = array.detach()
        return array.float() if array.dtype.itemsize < 4 or not array.dtype.is_floating_point else array
    xp = namespace(array)
    array = xp.asarray(array)
    return array if array.dtype.itemsize >= 4 and array.dtype.kind == "f" else array.astype(xp.float32)


def single(array: Tensor) -> Tensor:
    """Return a torch tensor in float32, which every device supports, and other arrays unchanged."""
    return array.float() if hasattr(array, "detach") else array


def aligned(values: Tensor, like: Tensor) -> Tensor:
    """Return values broadcast to the shape of `like`; values of shape [B] are those of sequences in [B, T]."""
    xp = namespace(like)
    if len(values.shape) == 1 and len(like.shape) == 2 and values.shape[0] == like.shape[0]:
        values = values[:, None]
    return xp.broadcast_to(values, like.shape)


def kept(mask: Tensor, like: Tensor) -> Tensor:
    """Return the mask as booleans, all true without a mask."""
    xp = namespace(like)
    return xp.ones_like(like) > 0 if mask is None else aligned(plain(mask), like) > 0


def row(
    new_log_prob: Tensor,
    old_log_prob: Tensor,
    advantages: Tensor = None,
    mask: Tensor = None,
    bounds: tuple[float, float] | None = None,
) -> Tensor:
    """Return the statistics of `COLUMNS` as one array on the tensors' device, without waiting for it.

    `bounds` are the log-ratios at which clipping begins. k1 = -x, k2 = x²/2, k3 = (r - 1) - x for x = log r (Schulman
    2020, Approximating KL Divergence). Shapes: log-probs [B] or [B, T], advantages the same or [B].
    """
    new = plain(new_log_prob)
    xp = namespace(new)
    log_ratio = single(new - plain(old_log_prob))
    keep = kept(mask, log_ratio)
    nothing = xp.zeros_like(log_ratio)
    count = xp.sum(xp.where(keep, nothing + 1, nothing))
    least = xp.where(count > 0, count, count + 1)

    def mean(values: Tensor) -> Tensor:
        return xp.sum(xp.where(keep, values, nothing)) / least

    def moments(values: Tensor) -> tuple[Tensor, Tensor]:
        centre = mean(values)
        return centre, mean((values - centre) ** 2) * count

    def reach(values: Tensor) -> tuple[Tensor, Tensor]:
        return xp.max(xp.where(keep, values, nothing - xp.inf)), xp.min(xp.where(keep, values, nothing + xp.inf))

    dev = xp.expm1(log_ratio)
    adv = nothing if advantages is None else single(aligned(plain(advantages), log_ratio))
    low, high = bounds or (-xp.inf, xp.inf)
    below, above = log_ratio < low, log_ratio > high
    shares = (mean(nothing + hit) for hit in (below, above, above & (adv > 0), below & (adv < 0)))
    log_mean, log_m2 = moments(log_ratio)
    adv_mean, adv_m2 = moments(adv)
    together = mean((log_ratio - log_mean) * (adv - adv_mean)) * count
    kls = (mean(-log_ratio), mean(log_ratio**2) / 2, mean(dev - log_ratio))
    values = (count, *moments(dev), *reach(dev), *kls, *shares, adv_mean, adv_m2, *reach(adv), log_mean, log_m2)
    return xp.stack([*values, together])


def loss_ratio_row(gradient: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Return [samples, mean squared relative spread] of the ratio that the loss itself used.

    The gradient of the surrogate by a log-prob is proportional to advantage times ratio where nothing is clipped, so
    gradient over advantage is the ratio up to a factor, which is constant in a sequence [B, T] or in a minibatch [B].
    """
    gradient = single(plain(gradient))
    xp = namespace(gradient)
    adv = single(aligned(plain(advantages), gradient))
    used = kept(mask, gradient) & (gradient != 0) & (adv != 0)
    nothing = xp.zeros_like(gradient)
    ratio = xp.where(used, gradient / xp.where(used, adv, nothing + 1), nothing)
    ones = xp.where(used, nothing + 1, nothing)
    several = len(gradient.shape) == 2
    count = xp.sum(ones, 1)[:, None] if several else xp.sum(ones)
    centre = (xp.sum(ratio, 1)[:, None] if several else xp.sum(ratio)) / xp.where(count > 0, count, count + 1)
    usable = used & (count > 1) & (centre != 0)
    spread = xp.where(usable, ratio / xp.where(centre != 0, centre, centre + 1) - 1, nothing)
    number = xp.sum(xp.where(usable, nothing + 1, nothing))
    return xp.stack([number, xp.sum(spread**2) / xp.where(number > 0, number, number + 1)])
