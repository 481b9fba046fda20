"""How much data have in common, from public records: by hand, by likelihood, and the coverage of its interval."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from services.kit.errors import InvalidInput
from services.kit.runtime import whatif
from services.pricing.domain.similarity import InvalidRecords, estimate
from services.pricing.whatif import SOLVERS


def draw(users: int, weight: float, records: int, random: np.random.Generator) -> Any:
    """Records of the field with one w: on a complete graph deviations from the mean are independent N(0, 1/(mw))."""
    values = random.standard_normal((records, users)) / np.sqrt(users * weight)
    return values - values.mean(axis=1, keepdims=True) + random.uniform(-5, 5, (records, 1))


def test_two_users_by_hand() -> None:
    """Five records, differences 1, 2, 0, 2, 1 of a range of 10: Q = 10/100, ν = 5, ŵ = 50."""
    records = np.array([[0, 1], [3, 1], [4, 4], [1, 3], [2, 1]], dtype=float)
    result = estimate(records, 10.0)
    assert [result.correlation, result.low, result.high] == pytest.approx([50.0, 8.312116, 128.3250], rel=1e-6)
    assert result.records == 5


@pytest.mark.parametrize("users", [2, 3, 7])
def test_no_other_w_makes_the_records_likelier(users: int) -> None:
    """By the definition: log pdet L(w) − Σ w(x_i − x_j)², on a grid."""
    records = draw(users, 3.0, 12, np.random.default_rng(users))
    apart = sum(
        (records[:, i] - records[:, j]) @ (records[:, i] - records[:, j]) for i in range(users) for j in range(i)
    )

    def likelihood(weight: float) -> float:
        laplacian = weight * (users * np.eye(users) - np.ones((users, users)))
        spectrum = np.linalg.eigvalsh(laplacian)[1:]
        return float(0.5 * len(records) * np.log(spectrum).sum() - 0.5 * weight * apart)

    best = estimate(records, 1.0).correlation
    assert all(likelihood(best) >= likelihood(best * factor) for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0))


def test_the_interval_has_its_nominal_coverage() -> None:
    random = np.random.default_rng(16)
    result = [estimate(draw(4, 2.0, 6, random), 1.0) for _ in range(2000)]
    covered = float(np.mean([item.low <= 2.0 <= item.high for item in result]))
    assert covered == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / 2000))


def test_records_that_do_not_determine_w_are_refused() -> None:
    good = np.arange(10.0).reshape(5, 2) ** 2
    for records, span, why in (
        (good[:4], 1.0, "add some"),
        (good[:, :1], 1.0, "at least 2 users"),
        (np.ones((5, 2)), 1.0, "all records of the group are equal"),
        (np.where(good == 81, np.nan, good), 1.0, "leave out records with gaps"),
        (good, 0.0, "correct its low and high"),
    ):
        with pytest.raises(InvalidRecords, match=why):
            estimate(records, span)


def test_what_if_answers_with_a_surveys_parameters() -> None:
    def ask(**question: Any) -> Any:
        return json.loads(whatif.answer(SOLVERS, "similarity", json.dumps(question)))

    records = {"a": [0, 3, 4, 1, 2], "b": [1, 1, 4, 3, 1], "c": [9, 0, 5, 5, 1]}
    result = ask(records=records, low=0, high=10, groups=[["a", "b"]])
    assert result["alike"] == [{"devices": ["a", "b"], "correlation": pytest.approx(50.0)}]
    assert result["intervals"][0] == pytest.approx([8.312116, 128.3250], rel=1e-6)
    (one_group,) = ask(records=records, low=0, high=10)["alike"]
    assert one_group["devices"] == ["a", "b", "c"]
    for wrong, why in (
        ({"groups": [["a", "d"]]}, "no records; add them"),
        ({"groups": [["a", "b"], ["b", "c"]]}, "in two groups"),
        ({"records": records | {"c": [1.0]}}, "of the same moments"),
    ):
        with pytest.raises(InvalidInput, match=why):
            ask(**({"records": records, "low": 0, "high": 10} | wrong))
