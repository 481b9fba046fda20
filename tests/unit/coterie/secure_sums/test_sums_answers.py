"""Surveys in a secure sum: the published sum's own privacy, and sums that cannot be honest."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.privacy.gaussian import exact_delta
from coterie.privacy.simulation import SeededStream
from coterie.secure_sums.acceptance import Promise, TermsRefused, check_terms
from coterie.secure_sums.answers import (
    answer_alone,
    answer_fault,
    answer_multiplier,
    answer_noise,
    answer_scale,
    answer_values,
    answer_variance,
    check_answer_terms,
)
from coterie.secure_sums.circle import Circle
from coterie.secure_sums.grid import NoGrid
from coterie.secure_sums.joining import Joined
from coterie.secure_sums.terms import Terms
from services.aggregation.domain.secure_terms import Model, SumRules, make_terms
from tests.attacks.sum_fixture import MODEL, SumFixture, circle_of, clear_sum, myself, names


def survey_terms(sum_fixture: SumFixture, variance_low: float, variance_high: float) -> Terms:
    """As a platform writes them: quorum 0.65 of the devices, a tenth of the survivors colluding."""
    rules = SumRules(secure=True)
    honest = rules.honest(math.ceil(0.65 * len(sum_fixture.devices)))
    return make_terms(
        sum_fixture.place,
        1,
        Model(MODEL, 1),
        sum_fixture.participants,
        sum_fixture.terms().clerks,
        rules,
        quorum=0.65,
        clip_norm=1.0,
        noise_multiplier=answer_noise(honest, variance_low),
        heaviest=1.0,
        scale=answer_scale(variance_high),
    )


@pytest.fixture
def sum_fixture(tmp_path: Path) -> SumFixture:
    return SumFixture(tmp_path, names(10), elements=1)


@pytest.mark.parametrize(
    ("high", "scale"), [(0.5, 32), (1.0, 32), (2.0**16, 32), (2.0**17, 31), (math.exp(10), 32), (2.0**60, 10)]
)
def test_the_scale_leaves_room_for_the_widest_noise(high: float, scale: int) -> None:
    assert answer_scale(high) == scale
    assert math.sqrt(high) * 2.0**scale <= 2.0**40


def test_devices_take_the_terms_of_a_survey(sum_fixture: SumFixture) -> None:
    terms = survey_terms(sum_fixture, 0.01, math.exp(10))
    assert (terms.bits, terms.scale, terms.elements) == (64, 32, 1)
    promise = Promise(4, 2, 1, answer_noise(terms.honest, 0.01))
    check_terms(terms, sum_fixture.participants, myself("dev_07", 1), promise, circle_of(names(4)))
    with pytest.raises(NoGrid, match="too coarse for the noise"):
        survey_terms(sum_fixture, 1e-18, 1.0)


def test_the_least_variance_everywhere_costs_what_the_terms_say(sum_fixture: SumFixture) -> None:
    """√(h·variance_low) is z; who sells less privacy adds more noise and is charged less."""
    terms = survey_terms(sum_fixture, 0.01, 4.0)
    assert answer_multiplier(0.01, terms, Circle()) == pytest.approx(answer_noise(terms.honest, 0.01), rel=1e-9)
    charges = [answer_multiplier(variance, terms, Circle()) for variance in (0.001, 0.01, 0.1, 1.0, 4.0)]
    assert charges == sorted(charges)
    assert charges[0] == charges[1], "no device adds less than the least variance"
    assert charges[-1] == pytest.approx(math.sqrt(4.0 + (terms.honest - 1) * 0.01), rel=1e-6)


def test_owner_relying_on_own_company_is_charged_for_their_noise_only(sum_fixture: SumFixture) -> None:
    terms = survey_terms(sum_fixture, 0.01, 4.0)
    company = Circle(count="company", company_least=2)
    assert answer_multiplier(0.5, terms, company) == pytest.approx(math.sqrt(0.5 + 2 * 0.01), rel=1e-6)
    assert answer_multiplier(0.5, terms, company) < answer_multiplier(0.5, terms, Circle())
    assert answer_alone(0.5, terms) == pytest.approx(1.0)  # 1/(2·0.5): its own noise alone


def test_joined_survey_uses_exactly_its_implied_noise_and_scale(
    sum_fixture: SumFixture,
) -> None:
    pricing = {"variance_low": 0.01, "variance_high": 4.0, "constant": 10.0}
    joined = Joined.of("priced", {"sums": {"mode": "secure"}, "survey": {"question": "?"}, "pricing": pricing})
    terms = survey_terms(sum_fixture, 0.01, 4.0)
    promise = joined.promise(terms.least, terms.honest)
    check_terms(terms, sum_fixture.participants, myself("dev_07", 1), promise, circle_of(names(4)))
    check_answer_terms(terms, joined.variance_high)
    for change in ({"scale": terms.scale - 1}, {"clip_norm": "0.5"}, {"bits": 32}):
        with pytest.raises(TermsRefused, match="sum of answers"):
            check_answer_terms(dataclasses.replace(terms, **change), joined.variance_high)
    quieter = dataclasses.replace(terms, noise_multiplier=repr(answer_noise(terms.honest, 0.009)))
    with pytest.raises(TermsRefused, match="other noise"):
        check_terms(quieter, sum_fixture.participants, myself("dev_07", 1), promise, circle_of(names(4)))
    endless = Joined.of("priced", {"survey": {"question": "?"}, "pricing": {**pricing, "variance_high": None}})
    assert endless.variance_high == math.exp(10.0)


@pytest.mark.parametrize("variance", [0.002, 0.02])
def test_delta_of_unequal_shares_by_convolution_is_at_most_the_charged(
    sum_fixture: SumFixture, variance: float
) -> None:
    """The own noise and h − 1 shares on a coarse copy of the grid (B = 200 steps), added up by convolution."""
    bound, honest, low = 200, 4, 0.002 * 200**2 + 4
    own = max(variance * bound**2, low)
    line = np.arange(-1_500, 1_501)

    def law(spread: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        mass = np.exp(-(line**2) / (2 * spread))
        return np.asarray(mass / mass.sum())

    whole = law(own)
    for _ in range(honest - 1):
        whole = np.convolve(whole, law(low))
    charged = math.sqrt(own + (honest - 1) * low - 16) / bound
    still, moved = np.append(whole, np.zeros(bound)), np.append(np.zeros(bound), whole)
    for epsilon in np.linspace(0.0, 20.0, 40):
        delta = float(np.maximum(still - math.exp(epsilon) * moved, 0.0).sum())
        assert delta <= exact_delta(charged, float(epsilon)) + 1e-12


def test_the_opened_sum_gives_the_mean_within_its_noise(sum_fixture: SumFixture) -> None:
    terms = survey_terms(sum_fixture, 1e-6, 1.0)
    shares = np.linspace(0.0, 1.0, 10)
    deliveries = {
        device: sum_fixture.deliver(terms, device, answer_values(float(share), 1e-6, terms, SeededStream(device)))
        for device, share in zip(sum_fixture.devices, shares, strict=True)
    }
    opened = sum_fixture.open(terms, deliveries)
    assert opened.tolist() == clear_sum(deliveries.values()).tolist()
    assert answer_fault(int(opened[0]), [1e-6] * 10, terms) is None
    assert math.ldexp(float(opened[0]), -terms.scale) / 10 == pytest.approx(0.5, abs=5 * 1e-3 / math.sqrt(10))


@settings(max_examples=50, deadline=None)
@given(st.floats(0.0, 1.0), st.floats(1e-4, 1.0), st.integers(0, 10**6))
def test_honest_sums_are_in_range_and_impossible_ones_are_not(share: float, variance: float, seed: int) -> None:
    terms = TERMS[0]
    value = int(answer_values(share, variance, terms, SeededStream(seed))[0])
    assert answer_fault(value, [variance], terms) is None
    beyond = 2**terms.scale + 10 * math.sqrt(answer_variance(variance, terms))
    assert answer_fault(math.ceil(beyond), [variance], terms) is not None
    assert answer_fault(-math.ceil(beyond), [variance], terms) is not None


TERMS: list[Terms] = []


@pytest.fixture(autouse=True, scope="module")
def one_set_of_terms(tmp_path_factory: pytest.TempPathFactory) -> None:
    TERMS.append(survey_terms(SumFixture(tmp_path_factory.mktemp("survey"), names(10), elements=1), 1e-4, 1.0))


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_answers_beyond_the_range_raise_without_showing_them(share: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1") as error:
        answer_values(share, 1.0, TERMS[0], SeededStream(1))
    assert str(share) not in str(error.value)
