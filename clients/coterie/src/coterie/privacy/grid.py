"""Releases on a grid: a vector, a query or a survey's answer, rounded to multiples of 2^-scale and noised exactly.

Whatever leaves a device with noise is made here in whole numbers; the float that is sent is a function of that whole
number alone, so no bit of it tells more than the whole number does.

**Why the Gaussian charge is honest.** Let k be the rounded value and B the most its L2 norm can change, both in grid
steps. Released is k + N with N from N_Z(0, V) in every element, V = (zB)² + 16. Round a real y to the whole number x
with weights ∝ exp(−(x − y)²/32); their sum is the same for all y but for a factor 1 ± 2e^-315 (Poisson summation,
2π²·16 > 315). Applied to y = k + N(0, V − 16), this gives P(x) ∝ ∫ exp(−(y − k)²/2(V − 16))·exp(−(x − y)²/32) dy ∝
exp(−(x − k)²/2V), which is k + N_Z(0, V). So the release is, to 300 digits, post-processing of the continuous Gaussian
release k + N(0, (zB)²), whose noise multiplier is z: `gaussian_charge(…, z)` holds, and composes as such. Taking V =
(zB)² alone would sell δ short by up to 4 % on a coarse grid; the 16 pays for that. The sampler adds at most 2^-100 to δ
for each element.

Rounding never lengthens a clipped vector: it is clipped √d/2 + 1 steps short, and the bound is checked in whole
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.privacy.adaptive import amplitude, joint_norm, share_within
from coterie.privacy.discrete import MOST_SIGMA, Integers, discrete_gaussian, discrete_laplace
from coterie.privacy.preconditions import check_positive
from coterie.privacy.stream import Stream

Floats = NDArray[np.float64]

KERNEL_VARIANCE = 16.0
"""Grid steps squared by which a discrete Gaussian must be wider than the continuous one it is charged as."""
_FINE = 4096.0
"""Steps of the bound for each unit of √d: clipping short of the bound costs 1/8192 of it."""
_NOISE_STEPS = 1024.0
"""Least deviation, in steps, of a release that chooses its own grid."""
_ANSWER_BITS = 32
_SHORTER = 1.0 - 2.0**-50
"""What a root of doubles is shortened by, more than its own error."""
_LIMB = 21


# --- rounding ---------------------------------------------------------------------------------------------------------


def rounded(change: NDArray[Any], clip_norm: float, scale: int, weight: float = 1.0) -> Integers:
    """weight·change in steps of 2^-scale, as whole numbers of L2 norm at most clip_norm·2^scale, exactly.

    All zeros where anything is not finite: declining would tell of the data.
    """
    bound = math.ldexp(check_positive("clip norm", clip_norm), scale)
    limit = bound - math.sqrt(change.size) / 2.0 - 1.0
    if limit <= 0.0:
        raise ValueError(f"a bound of {bound:g} steps is too coarse a grid for {change.size} elements")
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.ldexp(np.asarray(change, dtype=np.float64).ravel() * weight, scale)
    if not np.isfinite(steps).all():
        return np.zeros(change.size, np.int64)
    norm = _norm(steps)
    if norm > limit:
        steps *= limit / norm
    values = np.rint(steps).astype(np.int64)
    if squared_norm(values) > Fraction(bound) ** 2:
        raise ArithmeticError(
            f"rounding lengthened a vector of {change.size} elements beyond its bound; nothing is sent"
        )
    return values


def counted(change: NDArray[Any], joint: float, scale: int, weight: float = 1.0) -> Integers:
    """weight·change in steps of 2^-scale, clipped, and the bit behind it; of L2 norm at most joint·2^scale, exactly.

    A change that is not finite is told as zeros and as not within.
    """
    bound, one = math.ldexp(check_positive("clip norm", joint), scale), amplitude(joint, scale)
    inner = math.sqrt(bound * bound - float(one) * float(one)) * _SHORTER
    clip_norm = math.ldexp(inner, -scale)
    values = rounded(change, clip_norm, scale, weight)
    with np.errstate(over="ignore", invalid="ignore"):
        within = float(np.linalg.norm(np.asarray(change, dtype=np.float64) * weight)) <= clip_norm
    if squared_norm(values) + one * one > Fraction(bound) ** 2:
        raise ArithmeticError("update and count are longer together than their bound; nothing is sent")
    return np.append(values, np.int64(one if within else -one))


def squared_norm(values: Integers) -> int:
    """Σ v², exactly, for |v| < 2^62."""
    # In limbs of 21 bits every product has 42, and two million of them fit a 64-bit sum.
    total, mask = 0, (1 << _LIMB) - 1
    for start in range(0, values.size, 1 << _LIMB):
        size = np.abs(values[start : start + (1 << _LIMB)])
        limbs = [size & mask, (size >> _LIMB) & mask, size >> (2 * _LIMB)]
        for i, one in enumerate(limbs):
            if not one.any():
                continue
            for j, other in enumerate(limbs):
                total += int(one @ other) << (_LIMB * (i + j))
    return total


def _norm(steps: Floats) -> float:
    peak = float(np.abs(steps).max(initial=0.0))
    if peak > 1e150:  # squares would overflow
        return peak * float(np.linalg.norm(steps / peak))
    return float(np.linalg.norm(steps))


# --- releases ---------------------------------------------------------------------------------------------------------


def noised(values: NDArray[np.floating[Any]], clip_norm: float, multiplier: float, stream: Stream) -> Floats:
    """values, clipped to an L2 norm of `clip_norm`, with Gaussian noise of deviation multiplier·clip_norm.

    Honest for `gaussian_charge(…, multiplier)` where a contribution is left out (zeros in its place), and at four times
    that ρ where it is replaced. What is not finite is released as noise around zeros.

    Returns:
        multiples of a power of two in the shape of `values`. Casting them to float32 is post-processing, and leaves
        multiples of the same power.
    """
    scale = scale_for(clip_norm, multiplier, values.size)
    whole = rounded(values, clip_norm, scale)
    whole += discrete_gaussian(values.size, sigma_for(math.ldexp(clip_norm, scale), multiplier), stream)
    return _told(whole, scale, values.shape)


def noised_tensors(
    tensors: Mapping[str, NDArray[np.floating[Any]]], clip_norm: float, multiplier: float, stream: Stream
) -> dict[str, NDArray[np.floating[Any]]]:
    """`noised` for tensors clipped as one vector, each returned in its own shape and type."""
    if not tensors:
        return {}
    flat = noised(
        np.concatenate([np.ravel(value).astype(np.float64) for value in tensors.values()]),
        clip_norm,
        multiplier,
        stream,
    )
    parts = np.split(flat, np.cumsum([value.size for value in tensors.values()])[:-1])
    return {
        name: part.reshape(value.shape).astype(value.dtype)
        for (name, value), part in zip(tensors.items(), parts, strict=True)
    }


def noised_and_counted(
    change: NDArray[np.floating[Any]], clip_norm: float, multiplier: float, stream: Stream
) -> tuple[NDArray[np.float64], float]:
    """A change clipped to `clip_norm` with noise of deviation multiplier·K, and whether it was within it, noised alike.

    Honest for `gaussian_charge(…, multiplier)` where the device is left out.
    """
    joint = joint_norm(clip_norm)
    scale = scale_for(joint, multiplier, change.size + 1)
    whole = counted(change, joint, scale)
    whole += discrete_gaussian(whole.size, sigma_for(math.ldexp(joint, scale), multiplier), stream)
    return np.ldexp(whole[:-1].astype(np.float64), -scale), share_within(float(whole[-1]), amplitude(joint, scale), 1)


def noised_query(values: NDArray[np.floating[Any]], sensitivity: float, multiplier: float, stream: Stream) -> Floats:
    """values with Gaussian noise of deviation multiplier·sensitivity, nothing clipped: a sum of clipped gradients.

    `sensitivity` bounds the L2 distance of `values`, as computed, between neighbouring data sets. Rounding both ends
    adds at most √d steps to it, for which the noise is widened (by 1/4096).
    """
    if not np.isfinite(values).all():
        raise ValueError("a query's answer holds NaN or infinity; clip each example before adding up")
    scale = scale_for(sensitivity, multiplier, values.size)
    bound = math.ldexp(sensitivity, scale) + math.sqrt(values.size)
    whole = _whole(values, scale)
    whole += discrete_gaussian(values.size, sigma_for(bound, multiplier), stream)
    return _told(whole, scale, values.shape)


def noised_share(share: float, variance: float, stream: Stream) -> float:
    """A survey's answer, as a share of the question's range in [0, 1], with Gaussian noise of this variance.

    Honest for `gaussian_charge(…, √variance)`: an answer moves by 1 at most.
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError("an answer is told as a share of the range, from 0 to 1")  # the answer itself is private
    deviation = math.sqrt(check_positive("variance", variance))
    if not math.isfinite(deviation):
        raise ValueError(f"noise needs a finite variance, got {variance}; a device with infinite noise sends nothing")
    scale = min(_ANSWER_BITS, 39 - math.ceil(math.log2(max(1.0, deviation))))
    whole = round(math.ldexp(share, scale))
    whole += int(discrete_gaussian(1, sigma_for(math.ldexp(1.0, scale), deviation), stream)[0])
    return math.ldexp(whole, -scale)


def laplaced(values: NDArray[np.floating[Any]], sensitivity: float, epsilon: float, stream: Stream) -> Floats:
    """values with discrete Laplace noise of scale sensitivity/epsilon, ε-private for L1 sensitivity `sensitivity`.

    Rounding both ends adds at most one step for each element, for which the noise is widened (by 1/4096). A
    whole-number vector of L1 sensitivity Δ with noise of P(x) ∝ exp(−ε|x|/Δ) is ε-private exactly.
    """
    if not np.isfinite(values).all():
        raise ValueError("the vector holds NaN or infinity; clip it before noise is added")
    check_positive("sensitivity", sensitivity)
    check_positive("epsilon", epsilon)
    wanted = max(_FINE * values.size, _NOISE_STEPS * epsilon) / sensitivity
    scale = math.ceil(math.log2(wanted))
    steps = (math.ldexp(sensitivity, scale) + values.size) / epsilon
    if not steps <= MOST_SIGMA:
        raise ValueError(f"no grid serves {values.size} elements at ε = {epsilon:g}; ask for less noise")
    whole = _whole(values, scale)
    whole += discrete_laplace(values.size, steps, stream)
    return _told(whole, scale, values.shape)


# --- parts ------------------------------------------------------------------------------------------------------------


def scale_for(bound: float, multiplier: float, elements: int) -> int:
    """Bits after the point: fine enough for the vector and for the noise. Depends on no data."""
    check_positive("bound", bound)
    check_positive("noise multiplier", multiplier)
    wanted = max(_FINE * math.sqrt(elements), _NOISE_STEPS / multiplier) / bound
    scale = math.ceil(math.log2(wanted)) if 0.0 < wanted < math.inf else 0
    steps = math.ldexp(bound, scale)
    if not (math.isfinite(wanted) and sigma_for(steps + math.sqrt(elements), multiplier) <= MOST_SIGMA):
        raise ValueError(
            f"no grid serves {elements} elements with a bound of {bound:g} and a noise multiplier of {multiplier:g}; "
            "a device with infinite noise sends nothing"
        )
    return scale


def sigma_for(bound: float, multiplier: float) -> float:
    """√((z·B)² + 16), in steps; the charge's multiplier is then z."""
    # A relative 2^-50 more than any rounding of this line can take away.
    return math.sqrt((multiplier * bound) ** 2 + KERNEL_VARIANCE) * (1.0 + 2.0**-50)


def _whole(values: NDArray[np.floating[Any]], scale: int) -> Integers:
    steps = np.rint(np.ldexp(np.asarray(values, dtype=np.float64).ravel(), scale))
    if not (np.abs(steps).max(initial=0.0) < 2.0**62):
        raise ValueError("the vector is too large for the grid its noise needs; clip it, or ask for more noise")
    return steps.astype(np.int64)


def _told(whole: Integers, scale: int, shape: tuple[int, ...]) -> Floats:
    return np.ldexp(whole.astype(np.float64), -scale).reshape(shape)
