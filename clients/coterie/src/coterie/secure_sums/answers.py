"""A survey's answers in a secure sum: one element, noise by each device, and a price that counts the noise of all.

[CAPP] Correlation-Aware and Personalized Privacy-Preserving Data Collection sells noise on a published sum. In a clear
sum the platform sees each noised answer, so each answer pays for itself; here it sees only the sum and the paper's law
holds.

An answer is a share of the question's range, so B = 2^scale steps without clipping. Every device adds at least `share`,
the noise of the least variance offered; a device that sells less privacy adds more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from coterie.privacy.discrete import Integers, discrete_gaussian
from coterie.privacy.grid import KERNEL_VARIANCE
from coterie.privacy.stream import Stream
from coterie.secure_sums.acceptance import TermsRefused
from coterie.secure_sums.circle import Circle
from coterie.secure_sums.terms import Terms

MOST_SCALE = 32
BITS = 64


def answer_scale(variance_high: float) -> int:
    """Choose the bits after the point so that the sampler covers the widest noise offered."""
    return min(MOST_SCALE, 40 - math.ceil(math.log2(max(1.0, math.sqrt(variance_high)))))


def answer_noise(honest: int, variance_low: float) -> float:
    """Noise multiplier of the terms: that of `honest` answers with the least variance each."""
    return math.sqrt(honest * variance_low)


def answer_variance(variance: float, terms: Terms) -> float:
    """σ² in steps squared of a device that sold this variance (a share of the range squared)."""
    return max(math.ldexp(variance, 2 * terms.scale), terms.grid().share ** 2)


def answer_values(share_of_range: float, variance: float, terms: Terms, stream: Stream) -> Integers:
    """The device's one whole number, noise included."""
    if not 0.0 <= share_of_range <= 1.0:
        raise ValueError("an answer must be a share of the range, from 0 to 1")  # no value: it is private
    value = round(math.ldexp(share_of_range, terms.scale))
    return value + discrete_gaussian(1, math.sqrt(answer_variance(variance, terms)), stream)


def check_answer_terms(terms: Terms, variance_high: float) -> None:
    """Raise `TermsRefused` unless the terms are those of a survey whose answers may have this much noise."""
    if (terms.bits, terms.scale, float(terms.clip_norm)) != (BITS, answer_scale(variance_high), 1.0):
        raise TermsRefused("the terms are not those of a sum of answers; ask the publisher to check the task")


def answer_multiplier(variance: float, terms: Terms, circle: Circle) -> float:
    """Return the noise multiplier for the ledger: own noise and the share of every other honest device.

    An owner who counts on named company alone counts only the company it requires.
    """
    honest = terms.honest if circle.count == "assume" else min(terms.honest, 1 + circle.company_least)
    share, bound = terms.grid().share, math.ldexp(1.0, terms.scale)
    noise = answer_variance(variance, terms) + (honest - 1) * share**2
    return math.sqrt(noise - KERNEL_VARIANCE) / bound


def answer_alone(variance: float, terms: Terms) -> float:
    """Return ρ of the own noise alone: the price if t clerks and the platform collude."""
    return math.ldexp(1.0, 2 * terms.scale) / (2.0 * answer_variance(variance, terms))


def answer_fault(sum: int, variances: Sequence[float], terms: Terms) -> str | None:
    """Explain why an unmasked sum of answers with these variances cannot be honest; None if it can."""
    spread = terms.grid().tail * math.sqrt(math.fsum(answer_variance(variance, terms) for variance in variances))
    if -spread <= sum <= len(variances) * math.ldexp(1.0, terms.scale) + spread:
        return None
    return f"the sum of the answers lies outside the range of {len(variances)} answers and their noise"
