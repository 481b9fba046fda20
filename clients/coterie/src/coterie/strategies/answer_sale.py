"""An answer sold: the device answers one question with as much noise as the offer makes worth its while.

[CAPP] Correlation-Aware and Personalized Privacy-Preserving Data Collection.

The answer, the owner's care for its own and its friends' privacy and what it thinks that others' data hide of its own
are read from the device's private settings and are part of nothing that is sent but the noised answer. In the clear
the device's ledger is charged for the answer as a whole, since the platform sees each noised answer; in a secure sum
for the sum, which is what the paper means.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from coterie.agent.report import Delivery
from coterie.errors import Declined
from coterie.parameters.pricing import CorrelatedParameters
from coterie.parameters.task import OfferParameters
from coterie.privacy import answer_choice
from coterie.privacy.accounting import gaussian_charge
from coterie.privacy.question_text import Question
from coterie.privacy.releases import Answer
from coterie.secure_sums.acceptance import TermsRefused
from coterie.secure_sums.answers import answer_alone, answer_multiplier, answer_values, check_answer_terms
from coterie.secure_sums.contribution import purpose
from coterie.strategies import masked
from coterie.strategies.context import RoundContext

MICRO = 1_000_000
VALUE = "value"
"""Name of a survey's only tensor, of one float64."""
_NONSENSE = "the care in the device's private settings makes no sense; see `coterie device care`"
_ROUNDING = 1e-5
"""Credits by which whole micro-credits may fall short of an equilibrium that leaves nobody anything."""


class AnswerSale:
    """Sells a noised answer; masked in secure sums."""

    serves: ClassVar[tuple[tuple[str, str, str], ...]] = (("star", "priced", "correlated"),)
    masks: ClassVar[bool] = True

    def prepare(self, context: RoundContext) -> Delivery:
        """Decides the noise, charges the device's own ledger, answers; declines when answering is not worth it."""
        try:
            question = Question.of(context.work.parameters)
        except (TypeError, ValueError) as error:
            raise Declined(f"the survey makes no sense: {error}") from error
        share = question.share(answer_to(question, context.private))
        if context.work.sum:
            return _in_sum(context, share)
        variance = choose_variance(context)
        noised = context.release(Answer(VALUE, share, variance))
        return Delivery(noised, 1.0, budget=variance, privacy=context.charges())


def _in_sum(context: RoundContext, share: float) -> Delivery:
    session = masked.accept(context, context.model())
    terms, joined = session.terms, context.joined
    assert joined is not None  # else the session was not accepted
    try:
        check_answer_terms(terms, joined.variance_high)
    except TermsRefused as error:
        raise Declined(str(error)) from error
    variance = choose_variance(context)
    multiplier = answer_multiplier(variance, terms, session.circle)
    return masked.release(
        context,
        session,
        lambda: answer_values(share, variance, terms, context.noise()),
        gaussian_charge(terms.task, terms.round, purpose(terms), "device", multiplier),
        alone=answer_alone(variance, terms),
        budget=variance,
    )


def answer_to(question: Question, private: Mapping[str, Any]) -> float:
    """The owner's answer: under the question's own words in "answers", else "answer"."""
    answer_choice = private.get("answers", {})
    result = answer_choice.get(question.text) if isinstance(answer_choice, Mapping) else None
    result = private.get("answer") if result is None else result
    if not isinstance(result, int | float) or isinstance(result, bool) or not math.isfinite(result):
        raise Declined("this device has no answer to the question; see `coterie device answer`")
    return float(result)


def choose_variance(context: RoundContext) -> float:
    """Noise variance that is best for the owner; declines an offer that is worth less than the privacy it costs."""
    work = context.work
    offer = OfferParameters.of(work.parameters)
    if offer.others_variance is None:
        raise Declined("nothing is offered for an answer: the task's escrow is too small")
    care, hidden = _believed(context, offer.trust, offer.hidden)
    others = offer.others_variance
    low, high = offer.variance_low, offer.variance_high
    base, slope, most = (
        amount / MICRO for amount in (work.base_microcredits, work.slope_microcredits, offer.most_microcredits or 0)
    )
    answer = answer_choice.decide(base, slope, others, care=care, hidden=hidden, variance_low=low, variance_high=high)
    # Where the payment is at its most, a clearer answer earns nothing: noise is free up to there.
    variance = max(answer.variance, min((base - most) / slope, high)) if slope > 0 else answer.variance
    paid = min(max(base - slope * variance, 0.0), most)
    constant = CorrelatedParameters.of(work.parameters).constant
    worth = answer_choice.utility(paid, others + variance, care=care, hidden=hidden, constant=constant)
    # Unlike [CAPP], whose loss turns negative behind enough noise, nobody answers with noise alone for nothing.
    if worth < -_ROUNDING or paid <= 0.0 < most:
        raise Declined("the payment is too low for this device")
    return variance


def _believed(
    context: RoundContext, trust: Sequence[float], hidden: Sequence[float]
) -> tuple[list[float], list[float]]:
    """s_j and v_j for the device itself and then its friends: what the owner says, else what the task assumes.

    How much others' data hide follows from a correlation that the publisher may have declared too small, to pay less:
    of its own data the owner's word is the most that is believed.
    """
    pricing = CorrelatedParameters.of(context.work.parameters)
    care = {"own": pricing.own_care, "social": pricing.social_care}
    try:
        said = {**care, **context.private.get("care", {})}
        own, social, most = float(said["own"]), float(said["social"]), float(said.get("hidden", math.inf))
    except (TypeError, ValueError):
        raise Declined(_NONSENSE) from None
    if not (0 <= own < math.inf and 0 <= social < math.inf and most >= 0):
        raise Declined(_NONSENSE)
    if not trust:  # nothing betrays the device, says the platform
        return ([own], [most]) if most < math.inf else ([], [])
    return [own * trust[0], *(social * item for item in trust[1:])], [min(hidden[0], most), *hidden[1:]]
