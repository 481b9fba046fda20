"""Releases on a grid: a vector, a query or a survey's answer, rounded to multiples of 2^-scale and noised exactly.

Every noised release is computed here in whole numbers; the float that is sent is a function of that whole number alone,
so its bits reveal nothing more.

**Why the Gaussian charge is correct.** Let k be the rounded value and B the most its L2 norm can change, both in grid
steps. The release is k + N with N from N_Z(0, V) in every element, V = (zB)² + 16. Round a real y to the whole number x
with weights ∝ exp(−(x − y)²/32); their sum is the same for all y but for a factor 1 ± 2e^-315 (Poisson summation,
2π²·16 > 315). Applied to y = k + N(0, V − 16), this gives P(x) ∝ ∫ exp(−(y − k)²/2(V − 16))·exp(−(x − y)²/32) dy ∝
exp(−(x − k)²/2V), which is k + N_Z(0, V). So the release is, to 300 digits, post-processing of the continuous Gaussian
release k + N(0, (zB)²), whose noise multiplier is z: `gaussian_charge(…, z)` holds, and composes as such. Taking V =
(zB)² alone would understate δ by up to 4 % on a coarse grid; the 16 makes up for that. The sampler adds at most 2^-100
to δ per element.

Rounding never lengthens a clipped vector beyond its bound: the vector is clipped √d/2 + 1 steps short, and the bound is
checked in whole numbers.
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
"""Steps of the bound per √d: clipping short of the bound costs 1/8192 of it."""
_NOISE_STEPS = 1024.0
"""Least noise deviation, in steps, of a release that chooses its grid."""
_ANSWER_BITS = 32
_SHORTER = 1.0 - 2.0**-50
"""Shortens a square root of doubles by more than its error."""
_LIMB = 21


# --- rounding ---------------------------------------------------------------------------------------------------------


def rounded(change: NDArray[Any], clip_norm: float, scale: int, weight: float = 1.0) -> Integers:
    """weight·change in steps of 2^-scale, as whole numbers of L2 norm at most clip_norm·2^scale, exactly.

    All zeros if any value is not finite, because declining would reveal it.
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

    A change that is not finite counts as zeros and as not within the clip norm.
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
    # Products of 21-bit limbs have 42 bits, and two million of them fit a 64-bit sum.
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
    """Clip values to an L2 norm of `clip_norm` and add Gaussian noise of deviation multiplier·clip_norm.

    Costs `gaussian_charge(…, multiplier)` for a contribution left out (zeros in its place), four times that ρ for one
    replaced. Values that are not finite are released as noise around zeros.

    Returns:
        multiples of a power of two in the shape of `values`. Casting them to float32 is post-processing, and leaves
        multiples of the same power.
    """
    scale = scale_for(clip_norm, multiplier, values.size)
    whole = rounded(values, clip_norm, scale)
    whole += discrete_gaussian(values.size, sigma_for(math.ldexp(clip_norm, scale), multiplier), stream)
    return _to_floats(whole, scale, values.shape)


def noised_tensors(
    tensors: Mapping[str, NDArray[np.floating[Any]]], clip_norm: float, multiplier: float, stream: Stream
) -> dict[str, NDArray[np.floating[Any]]]:
    """`noised` for tensors clipped as one vector, each returned in its shape and type."""
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
    """Clip a change to `clip_norm`; return it and the bit "was within", both with noise of deviation multiplier·K.

    Costs `gaussian_charge(…, multiplier)` for the device left out.
    """
    joint = joint_norm(clip_norm)
    scale = scale_for(joint, multiplier, change.size + 1)
    whole = counted(change, joint, scale)
    whole += discrete_gaussian(whole.size, sigma_for(math.ldexp(joint, scale), multiplier), stream)
    return np.ldexp(whole[:-1].astype(np.float64), -scale), share_within(float(whole[-1]), amplitude(joint, scale), 1)


def noised_query(values: NDArray[np.floating[Any]], sensitivity: float, multiplier: float, stream: Stream) -> Floats:
    """Add Gaussian noise of deviation multiplier·sensitivity to a query's answer, such as a sum of clipped gradients.

    `sensitivity` bounds the L2 distance of `values`, as computed, between neighbouring data sets. Rounding both ends
    adds at most √d steps to it; the noise is widened by 1/4096 to cover them.
    """
    if not np.isfinite(values).all():
        raise ValueError("a query's answer holds NaN or infinity; clip each example before the sum")
    scale = scale_for(sensitivity, multiplier, values.size)
    bound = math.ldexp(sensitivity, scale) + math.sqrt(values.size)
    whole = _whole(values, scale)
    whole += discrete_gaussian(values.size, sigma_for(bound, multiplier), stream)
    return _to_floats(whole, scale, values.shape)


def noised_share(share: float, variance: float, stream: Stream) -> float:
    """Add Gaussian noise of this variance to a survey's answer, a share of the question's range in [0, 1].

    Costs `gaussian_charge(…, √variance)`: an answer moves by 1 at most.
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError("an answer must be a share of the range, from 0 to 1")  # no value: it is private
    deviation = math.sqrt(check_positive("variance", variance))
    if not math.isfinite(deviation):
        raise ValueError(f"noise needs a finite variance, got {variance}; a device with infinite noise sends nothing")
    scale = min(_ANSWER_BITS, 39 - math.ceil(math.log2(max(1.0, deviation))))
    whole = round(math.ldexp(share, scale))
    whole += int(discrete_gaussian(1, sigma_for(math.ldexp(1.0, scale), deviation), stream)[0])
    return math.ldexp(whole, -scale)


def laplaced(values: NDArray[np.floating[Any]], sensitivity: float, epsilon: float, stream: Stream) -> Floats:
    """Add discrete Laplace noise of scale sensitivity/epsilon: ε-private for L1 sensitivity `sensitivity`.

    Rounding both ends adds at most one step per element; the noise is widened by 1/4096 to cover them. A
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
    return _to_floats(whole, scale, values.shape)


# --- parts ------------------------------------------------------------------------------------------------------------


def scale_for(bound: float, multiplier: float, elements: int) -> int:
    """Choose the bits after the point, fine enough for the vector and the noise; independent of the data."""
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
    # The relative 2^-50 exceeds the rounding error of this line.
    return math.sqrt((multiplier * bound) ** 2 + KERNEL_VARIANCE) * (1.0 + 2.0**-50)


def _whole(values: NDArray[np.floating[Any]], scale: int) -> Integers:
    steps = np.rint(np.ldexp(np.asarray(values, dtype=np.float64).ravel(), scale))
    if not (np.abs(steps).max(initial=0.0) < 2.0**62):
        raise ValueError("the vector is too large for the grid its noise needs; clip it, or ask for more noise")
    return steps.astype(np.int64)


def _to_floats(whole: Integers, scale: int, shape: tuple[int, ...]) -> Floats:
    return np.ldexp(whole.astype(np.float64), -scale).reshape(shape)
