"""A survey's strategy: the device answers with its best noise and never sends the answer itself."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import Declined
from coterie.privacy.answer_choice import utility
from coterie.privacy.ledger import Limit
from coterie.privacy.question_text import Question, estimate
from coterie.privacy.simulation import SeededStream
from coterie.strategies import strategy_for
from coterie.strategies.answer_sale import AnswerSale, answer_to, choose_variance
from coterie_cli.question_task import initial_model, survey_specification
from tests.unit.coterie.strategies.priced_round import Device, work_item

QUESTION = Question("How warm is it?", 10.0, 30.0)
# One user alone: care 1, v = 4, C = 5. With θ = 0.05 it stops adding noise where 1/(φ + 4) = 0.05, at φ = 16.
OFFER = {
    "expected": 6.0,
    "most_microcredits": 10_000_000,
    "others_variance": 10.0,
    "variance_low": 0.5,
    "variance_high": 100.0,
    "trust": [1.0],
    "hidden": [4.0],
}
PRIVATE = {"answer": 25.0}


def survey_work(offer: dict[str, Any] | None = None, **changes: Any) -> Any:
    parameters = survey_specification(QUESTION, {"constant": 5.0})["parameters"] | {
        "offer": OFFER if offer is None else offer
    }
    values = {"incentive": "correlated", "price_microcredits": 0, "parameters": parameters}
    values |= {"base_microcredits": 3_000_000, "slope_microcredits": 50_000}
    return work_item(**(values | changes))


def test_surveys_have_their_strategy() -> None:
    assert isinstance(strategy_for(survey_work()), AnswerSale)


def test_the_noise_is_the_best_response_to_the_offer(tmp_path: Path) -> None:
    """φ = 16 and the others add 10: q = 6, for 3 − 0.05·6 = 2.7 credits."""
    assert choose_variance(Device(tmp_path, PRIVATE).context(survey_work())) == pytest.approx(6.0)


def test_no_other_noise_would_have_been_better(tmp_path: Path) -> None:
    device = Device(tmp_path, PRIVATE | {"care": {"own": 1.7}})
    for most in (4_600_000, 4_750_000, 10_000_000):
        offer = OFFER | {"most_microcredits": most}
        chosen = choose_variance(device.context(survey_work(offer, base_microcredits=5_000_000)))

        def worth(q: float, most: int = most) -> float:
            paid = min(max(5.0 - 0.05 * q, 0.0), most / 1e6)
            return utility(paid, 10.0 + q, care=[1.7], hidden=[4.0], constant=5.0)

        assert worth(chosen) >= max(worth(float(q)) for q in np.linspace(0.5, 100.0, 1600)) - 1e-9


def test_friends_count_as_far_as_the_owner_cares(tmp_path: Path) -> None:
    """Care 1 + 0.5·0.8 for a friend with the same v: φ = 1.4/0.05 − 4 = 24."""
    device = Device(tmp_path, PRIVATE | {"care": {"social": 0.5}})
    offer = OFFER | {"trust": [1.0, 0.8], "hidden": [4.0, 4.0]}
    assert choose_variance(device.context(survey_work(offer, base_microcredits=5_000_000))) == pytest.approx(14.0)


def test_whom_nothing_can_betray_answers_as_clearly_as_may_be(tmp_path: Path) -> None:
    offer = OFFER | {"trust": [], "hidden": []}
    assert choose_variance(Device(tmp_path, PRIVATE).context(survey_work(offer))) == 0.5


def test_survey_understating_correlation_gets_no_clearer_answer(
    tmp_path: Path,
) -> None:
    """The larger a v the device believes in, the less noise it adds (φ = 1/θ − v) and the less it takes for it."""
    honest = choose_variance(Device(tmp_path / "honest", PRIVATE).context(survey_work()))
    lie = OFFER | {"hidden": [14.0]}
    believed = choose_variance(Device(tmp_path / "believing", PRIVATE).context(survey_work(lie)))
    assert believed < honest, "a lie pays where no device knows better"
    knowing = PRIVATE | {"care": {"hidden": 4.0}}
    assert choose_variance(Device(tmp_path / "a", knowing).context(survey_work(lie))) == honest
    modest = PRIVATE | {"care": {"hidden": 40.0}}
    assert choose_variance(Device(tmp_path / "b", modest).context(survey_work(lie))) == believed, "the least counts"
    nothing = survey_work(OFFER | {"trust": [], "hidden": [], "most_microcredits": 0}, base_microcredits=0)
    with pytest.raises(Declined, match="too low"):
        choose_variance(Device(tmp_path / "c", knowing).context(nothing))


@pytest.mark.parametrize(
    ("private", "changes", "why"),
    [
        (PRIVATE, {"base_microcredits": 400_000}, "too low"),
        (PRIVATE | {"care": {"own": 50.0}}, {}, "too low"),
        (PRIVATE | {"care": {"own": 50.0}}, {"slope_microcredits": 400_000}, "too low"),  # noise alone, for nothing
        (PRIVATE | {"care": {"own": -1.0}}, {}, "makes no sense"),
        (PRIVATE | {"care": {"own": "much"}}, {}, "makes no sense"),
        (PRIVATE | {"care": {"hidden": -1}}, {}, "makes no sense"),
        (PRIVATE | {"care": "a lot"}, {}, "makes no sense"),
        ({"answers": {"Another question?": 25.0}}, {}, "no answer"),
        ({"answer": math.nan}, {}, "no answer"),
        ({"answer": True}, {}, "no answer"),
        ({"answer": "25"}, {}, "no answer"),
    ],
)
def test_an_offer_that_is_not_worth_it_is_declined(
    tmp_path: Path, private: dict[str, Any], changes: dict[str, Any], why: str
) -> None:
    device = Device(tmp_path, private)
    with pytest.raises(Declined, match=why) as refusal:
        AnswerSale().prepare(device.context(survey_work(**changes)))
    assert "25" not in str(refusal.value)
    assert device.ledger.spent().releases == 0


def test_an_escrow_too_small_for_any_offer_declines(tmp_path: Path) -> None:
    offer = {"expected": 0.0, "most_microcredits": 0}
    with pytest.raises(Declined, match="escrow is too small"):
        choose_variance(Device(tmp_path, PRIVATE).context(survey_work(offer)))


def test_the_answer_leaves_with_noise_alone_and_is_charged_as_a_whole(tmp_path: Path) -> None:
    device = Device(tmp_path, PRIVATE)
    values = []
    for number in range(1, 41):
        context = device.context(survey_work(round=number), noise=lambda n=number: SeededStream(n))  # type: ignore[misc]
        delivery = AnswerSale().prepare(context)
        assert (delivery.form, delivery.weight, delivery.metrics) == ("mean", 1.0, {})
        assert delivery.budget == pytest.approx(6.0)
        assert [(use.mechanism, use.unit) for use in delivery.privacy] == [("gaussian", "device")]
        assert delivery.privacy[0].multiplier == pytest.approx(math.sqrt(6.0))
        assert delivery.tensors is not None
        values.append(float(delivery.tensors["value"][0]))
    assert np.mean(values) == pytest.approx(0.75, abs=4 * math.sqrt(6.0 / 40))  # (25 − 10)/20
    assert np.std(values) == pytest.approx(math.sqrt(6.0), rel=0.35)
    entry = device.ledger.history()[0]
    assert (entry.charge.mechanism, entry.charge.unit) == ("gaussian", "device")
    assert entry.charge.rho == pytest.approx(1 / 12)


def test_the_owner_s_limit_is_kept(tmp_path: Path) -> None:
    device = Device(tmp_path, PRIVATE, Limit(0.5, 1e-5))
    with pytest.raises(Declined, match="privacy limit of the device's owner"):
        AnswerSale().prepare(device.context(survey_work()))


def test_the_answer_to_the_very_question_comes_first() -> None:
    private = {"answer": 1.0, "answers": {QUESTION.text: 2.0}}
    assert answer_to(QUESTION, private) == 2.0
    assert answer_to(Question("Else?", 0, 1), private) == 1.0


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_answer_becomes_a_share_of_the_range(answer: float) -> None:
    assert 0.0 <= QUESTION.share(answer) <= 1.0


def test_the_estimate_is_the_mean_with_chebyshev_s_bound() -> None:
    """Shares 0.25, 0.5, 0.75 and variances 0.1, 0.2, 0.15: mean 20, deviation √0.45/3·20, bound that over √0.05."""
    result = estimate(QUESTION, 1.5, [0.1, 0.2, 0.15])
    assert result.mean == pytest.approx(20.0)
    assert result.total_variance == pytest.approx(0.45)
    assert result.standard_error == pytest.approx(4.4721, abs=1e-4)
    assert result.error == pytest.approx(20.0, abs=1e-4)
    assert result.answers == 3


@pytest.mark.parametrize("variances", [[], [math.nan], [-1.0], [math.inf]])
def test_an_estimate_of_nothing_is_refused(variances: list[float]) -> None:
    with pytest.raises(ValueError, match="one finite variance"):
        estimate(QUESTION, 1.0, variances)


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (math.nan, 1.0), (0.0, math.inf)])
def test_a_question_without_a_range_is_refused(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="low < high"):
        Question("How much?", low, high)


def test_a_survey_s_model_is_one_number() -> None:
    from safetensors.numpy import load

    assert {name: value.tolist() for name, value in load(initial_model()).items()} == {"value": [0.0]}


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """4,000 simulated surveys of nine answers with unequal noise: 95 % within the interval, all within Chebyshev's."""
    draw = np.random.default_rng(16)
    shares, variances = draw.uniform(0, 1, 9), draw.uniform(0.001, 0.02, 9)
    truth = QUESTION.low + shares.mean() * QUESTION.span
    sums = (shares + draw.standard_normal((4000, 9)) * np.sqrt(variances)).sum(axis=1)
    result = [estimate(QUESTION, float(total), variances) for total in sums]
    off = np.array([abs(item.mean - truth) for item in result])
    covered = float((off <= result[0].interval).mean())
    assert covered == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / 4000))
    assert (off <= result[0].error).mean() > 0.999
    assert result[0].error == pytest.approx(np.sqrt(20.0) / 1.959964 * result[0].interval, rel=1e-6)
