"""Answer sale: the device answers one question with the noise that is best for its owner at the offered payment.

[CAPP] Correlation-Aware and Personalized Privacy-Preserving Data Collection.

The private settings hold the answer, the owner's care for its own and its friends' privacy, and its belief about how
much others' data hide; nothing of them leaves the device except the noised answer. In the clear the ledger is charged
for the noised answer, which the platform sees; in a secure sum for the sum, as in the paper.
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
"""Tolerance in credits for payments rounded to micro-credits at an equilibrium of utility 0."""


class AnswerSale:
    """Sells a noised answer; masked in secure sums."""

    serves: ClassVar[tuple[tuple[str, str, str], ...]] = (("star", "priced", "correlated"),)
    masks: ClassVar[bool] = True

    def prepare(self, context: RoundContext) -> Delivery:
        """Choose the noise, charge the ledger and answer; decline if an answer is not worth its payment."""
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
    assert joined is not None  # `accept` requires it
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
    """Return the owner's answer: "answers" under the question's text, else "answer"."""
    answers = private.get("answers", {})
    result = answers.get(question.text) if isinstance(answers, Mapping) else None
    result = private.get("answer") if result is None else result
    if not isinstance(result, int | float) or isinstance(result, bool) or not math.isfinite(result):
        raise Declined("this device has no answer to the question; see `coterie device answer`")
    return float(result)


def choose_variance(context: RoundContext) -> float:
    """Return the owner's best noise variance; decline an offer that is worth less than the privacy it costs."""
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
    # At the largest payment a clearer answer earns nothing more, so noise up to there is free.
    variance = max(answer.variance, min((base - most) / slope, high)) if slope > 0 else answer.variance
    paid = min(max(base - slope * variance, 0.0), most)
    constant = CorrelatedParameters.of(work.parameters).constant
    worth = answer_choice.utility(paid, others + variance, care=care, hidden=hidden, constant=constant)
    # Unlike [CAPP], whose loss turns negative behind enough noise, a device does not answer without payment.
    if worth < -_ROUNDING or paid <= 0.0 < most:
        raise Declined("the payment is too low for this device")
    return variance


def _believed(
    context: RoundContext, trust: Sequence[float], hidden: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Return s_j and v_j of the device and then its friends: the owner's settings, else the task's assumptions.

    The platform computes v_j from a correlation that the publisher may have declared too small, to pay less, so the
    owner's own value bounds v_j of the device.
    """
    pricing = CorrelatedParameters.of(context.work.parameters)
    care = {"own": pricing.own_care, "social": pricing.social_care}
    try:
        settings = {**care, **context.private.get("care", {})}
        own, social, most = float(settings["own"]), float(settings["social"]), float(settings.get("hidden", math.inf))
    except (TypeError, ValueError):
        raise Declined(_NONSENSE) from None
    if not (0 <= own < math.inf and 0 <= social < math.inf and most >= 0):
        raise Declined(_NONSENSE)
    if not trust:  # the platform knows of no device whose answer reveals this one's
        return ([own], [most]) if most < math.inf else ([], [])
    return [own * trust[0], *(social * item for item in trust[1:])], [min(hidden[0], most), *hidden[1:]]
