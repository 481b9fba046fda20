"""Offers of a survey: the payment to each user for an answer with little noise, within the round's share of escrow.

[CAPP] Correlation-Aware and Personalized Privacy-Preserving Data Collection.

Care for each other's privacy follows from trust between devices. Correlation follows from trust too, unless the
publisher states it for all pairs or for groups; devices report neither. Slopes are rounded up to whole micro-credits
and each base follows, so that at a device's expected variance the payment is the planned one, which is also its
maximum: the sum of all offers is within the budget. Noise above the expected variance costs the device, less gains it
nothing, and the equilibrium stays.

Unlike [CAPP], no user ever pays: with enough noise its payment is 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse

from coterie.parameters.pricing import CorrelatedParameters
from coterie.records.enums import QuoteStatus
from services.kit.errors import TooLarge
from services.kit.runtime.whatif import plain
from services.pricing.domain.collection import Collection, collect, required
from services.pricing.domain.correlated_users import Survey, accuracy, hidden_variances
from services.pricing.domain.influence import Matrix
from services.pricing.domain.money import MICRO, apportion, from_credits, whole
from services.pricing.domain.records import Offer, Quote, RoundBudget, Terms

MOST_USERS = 2_000
"""Care and correlation are dense matrices over the users."""


class SurveyTooLarge(TooLarge):
    """More users than one survey round can price."""


def quote_correlated(
    task_id: str,
    round_number: int,
    device_ids: list[str],
    ties: sparse.csr_array,
    parameters: CorrelatedParameters,
    round_budget: RoundBudget,
) -> Quote:
    """One offer per user; without a feasible collection all offers are zero and the details hold the least budget."""
    if len(device_ids) > MOST_USERS:
        raise SurveyTooLarge(
            f"{len(device_ids)} users are more than the {MOST_USERS} that one survey round takes; lower max_devices"
        )
    survey = _survey(ties, parameters, device_ids)
    collected = collect(survey, round_budget.share_microcredits / MICRO, parameters.prices)
    offers = _offers(device_ids, collected, round_budget.share_microcredits, _terms(survey, ties, collected))
    status = QuoteStatus.OK if collected.tariff is not None else QuoteStatus(collected.status)
    details = _details(survey, collected, parameters, device_ids)
    return Quote(
        task_id=task_id,
        round=round_number,
        incentive="correlated",
        status=status,
        offers=offers,
        pot_microcredits=0,
        details=details,
    )


def _survey(ties: sparse.csr_array, parameters: CorrelatedParameters, device_ids: list[str]) -> Survey:
    trust = ties.toarray()
    care = parameters.social_care * trust
    np.fill_diagonal(care, parameters.own_care)
    known = tuple(place for place, device_id in enumerate(device_ids) if device_id in parameters.known)
    high = math.exp(parameters.constant) if parameters.variance_high is None else parameters.variance_high
    return Survey(
        hidden_variances(_correlation(trust, parameters, device_ids), parameters.variance_model, known=known),
        care,
        constant=parameters.constant,
        variance_low=parameters.variance_low,
        variance_high=high,
    )


def _correlation(trust: Matrix, parameters: CorrelatedParameters, device_ids: list[str]) -> Matrix:
    """w of each pair: the largest of the groups that contain both, else the task's, else the trust between them."""
    place = {device_id: number for number, device_id in enumerate(device_ids)}
    declared = np.zeros_like(trust)
    for group in parameters.alike:
        block = np.ix_(*2 * ([place[device_id] for device_id in group.devices if device_id in place],))
        declared[block] = np.maximum(declared[block], group.correlation)
    result = np.where(declared > 0.0, declared, trust if parameters.correlation is None else parameters.correlation)
    np.fill_diagonal(result, 0.0)
    return result


def _offers(device_ids: list[str], collected: Collection, share: int, terms: list[Terms | None]) -> tuple[Offer, ...]:
    if collected.tariff is None:
        return tuple(Offer(device_id) for device_id in device_ids)
    # A user who gains from the others' noise would have to pay (c_i < 0): it is paid nothing, and the rest fits.
    most = [max(0, from_credits(payment)) for payment in collected.tariff.payments.tolist()]
    if sum(most) > share:
        most = apportion(share, most, device_ids)
    return tuple(
        _offer(device_id, paid, slope, variance, own_terms)
        for device_id, paid, slope, variance, own_terms in zip(
            device_ids, most, collected.tariff.slopes.tolist(), collected.tariff.variances.tolist(), terms, strict=True
        )
    )


def _offer(device_id: str, paid: int, slope: float, variance: float, terms: Terms | None) -> Offer:
    """Round θ up, and set r so that r − θq is the planned payment."""
    steps = max(0, from_credits(slope, up=True))
    base = whole(paid + steps * variance, up=True)
    return Offer(
        device_id,
        base_microcredits=base,
        slope_microcredits=steps,
        expected=variance,
        most_microcredits=paid,
        terms=terms,
    )


def _terms(survey: Survey, ties: sparse.csr_array, collected: Collection) -> list[Terms | None]:
    """What each device needs to answer its offer: the others' noise, and the hidden variances it may care about."""
    if collected.tariff is None:
        return [None] * survey.users
    total = float(collected.tariff.variances.sum())
    result: list[Terms | None] = []
    for user, own in enumerate(collected.tariff.variances.tolist()):
        row = slice(ties.indptr[user], ties.indptr[user + 1])
        around = [(1.0, user), *zip(ties.data[row].tolist(), ties.indices[row].tolist(), strict=True)]
        seen = [
            (trust, float(survey.hidden[j])) for trust, j in around if trust > 0 and math.isfinite(survey.hidden[j])
        ]
        trusts, hidden = tuple(trust for trust, _ in seen), tuple(variance for _, variance in seen)
        result.append(Terms(total - own, survey.variance_low, survey.variance_high, trusts, hidden))
    return result


def least_credits(survey: Survey, collected: Collection) -> float:
    """The least budget that guarantees prices: with them one user can carry all the noise."""
    if collected.status != "no positive prices":
        return max(0.0, collected.least_budget)
    reach = survey.variance_high + (survey.users - 1) * survey.variance_low
    return max(0.0, float(required(survey, reach).sum()))


def _details(
    survey: Survey, collected: Collection, parameters: CorrelatedParameters, device_ids: list[str]
) -> dict[str, Any]:
    known = not math.isnan(collected.total)
    details: dict[str, Any] = {
        "plan": collected.status,
        "total_variance": collected.total if known else None,
        "error": parameters.error,
        "accuracy": accuracy(collected.total, parameters.error) if known else None,
        "least_microcredits": from_credits(least_credits(survey, collected), up=True),
        "hidden_variances": survey.hidden,
        "known": [device_id for device_id in device_ids if device_id in parameters.known],
        "variance_low": survey.variance_low,
        "variance_high": survey.variance_high,
    }
    result: dict[str, Any] = plain(details)
    return result
