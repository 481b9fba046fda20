"""The market's strategy: the device decides by its private costs and spends exactly what it sells."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import Declined
from coterie.learning.learner import Guarded
from coterie.learning.local_steps import LocalSteps
from coterie.learning.torch_learner import TorchLearner
from coterie.learning.training import model_bytes
from coterie.privacy.budget_choice import PrivateCosts, decide, utility
from coterie.privacy.ledger import Limit
from coterie.privacy.releases import Arrays, Descent
from coterie.privacy.simulation import SeededStream
from coterie.privacy.zcdp import multiplier_of_rho
from coterie.strategies import strategy_for
from coterie.strategies.budget_sale import BudgetSale, choose_budget, costs_of, noised_descent
from tests.unit.coterie.strategies.priced_round import Device, work_item

COSTS = {"quadratic": 1.0, "linear": 0.2, "fixed": 0.0}


def linear_trainer(samples: int = 40) -> TorchLearner:
    draw = torch.Generator().manual_seed(3)
    inputs = torch.randn(samples, 4, generator=draw)
    targets = (inputs[:, 0] > 0).long()
    module = torch.nn.Linear(4, 2)
    with torch.no_grad():
        module.weight.zero_()
        module.bias.zero_()
    return TorchLearner(module, (inputs, targets))


def stored_model(folder: Path) -> Path:
    path = folder / "model.safetensors"
    path.write_bytes(model_bytes(linear_trainer().module))
    return path


def budget_of(device: Device, **changes: Any) -> float:
    work = work_item(**changes)
    return choose_budget(device.context(work), LocalSteps.of(work.training))


def test_the_market_has_its_strategy() -> None:
    assert isinstance(strategy_for(work_item()), BudgetSale)


def test_the_budget_is_the_best_response_to_price_and_risk(tmp_path: Path) -> None:
    """r = 1, a = 1, b = 0.2, αR = 0.1: ρ = (1 − 0.2)/2 − 0.1 = 0.3."""
    device = Device(tmp_path, {"costs": COSTS})
    assert budget_of(device, external_risk=0.1) == pytest.approx(0.3)


def test_no_more_is_sold_than_is_paid_for(tmp_path: Path) -> None:
    device = Device(tmp_path, {"costs": COSTS})
    offer = {"offer": {"expected": 0.1, "most_microcredits": 150_000}}
    assert budget_of(device, parameters=offer) == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("costs", "changes", "why"),
    [
        (COSTS, {"price_microcredits": 0}, "no price"),
        (COSTS, {"price_microcredits": 100_000}, "too low"),  # below b: nothing is worth selling
        (COSTS | {"fixed": 10.0}, {}, "too low"),
        (COSTS, {"external_risk": 0.5}, "too low"),
        (COSTS, {"training": {"least_budget": 0.5}}, "less than the task takes"),
        (COSTS | {"quadratic": -3.5}, {}, "make no sense"),
        (COSTS | {"linear": math.nan}, {}, "make no sense"),
        ({"lineal": 3.5}, {}, "make no sense"),
    ],
)
def test_round_that_is_not_worth_it_is_declined_without_word_about_costs(
    tmp_path: Path, costs: dict[str, float], changes: dict[str, Any], why: str
) -> None:
    device = Device(tmp_path, {"costs": costs})
    with pytest.raises(Declined, match=why) as refusal:
        budget_of(device, **changes)
    assert "3.5" not in str(refusal.value)
    assert "10" not in str(refusal.value)
    assert device.ledger.spent().releases == 0


def test_a_device_without_costs_draws_them_once_and_keeps_them(tmp_path: Path) -> None:
    device = Device(tmp_path, {"answer": 4})
    drawn = costs_of(device.context(work_item()))
    assert 0.8 <= drawn.quadratic <= 1.2
    assert 0.02 <= drawn.linear <= 0.06
    other_noise = device.context(work_item(), noise=lambda: SeededStream(8))
    assert costs_of(other_noise) == drawn
    assert device.home.private_settings()["answer"] == 4


def test_computing_is_measured_and_priced_but_never_sent(tmp_path: Path) -> None:
    """Before its first sale a device looks at a few samples; while it sells it measures, and nothing of it is sent."""
    device = Device(tmp_path, {"costs": COSTS, "computing": {"kappa": 1e-30}, "answer": 4})
    delivery = BudgetSale().prepare(device.context(work_item(), linear_trainer(), stored_model(tmp_path)))
    retained = device.home.private_settings()
    assert retained["effort"]["cycles_per_sample"] > 0
    assert retained["effort"]["hertz"] > 0
    assert (retained["costs"], retained["answer"]) == (COSTS, 4)
    assert not {"effort", "computing", "cycles"} & set(json.loads(delivery.report()))


def test_offer_below_computing_cost_is_declined_without_a_reason(tmp_path: Path) -> None:
    """U(0.4) = 0.4 − 0.16 − 0.08 = 0.16 credits at r = 1; 40 samples of 1e6 cycles at 1 GHz cost κ · 4e16."""
    effort = {"cycles_per_sample": 1e6, "hertz": 1e9, "joules_per_sample": None}
    for kappa, sells in ((3.9e-18, True), (4.1e-18, False)):
        settings_ = {"costs": COSTS, "computing": {"kappa": kappa}, "effort": effort}
        device = Device(tmp_path / str(kappa), settings_)
        context = device.context(work_item(), linear_trainer(), stored_model(tmp_path))
        if sells:
            assert choose_budget(context, LocalSteps()) == pytest.approx(0.4)
            continue
        with pytest.raises(Declined, match="price is too low for this device") as refusal:
            choose_budget(context, LocalSteps())
        assert not any(sign.isdigit() for sign in str(refusal.value))
    odd = Device(tmp_path / "odd", {"costs": COSTS, "computing": {"kappa": -1.0}})
    with pytest.raises(Declined, match="makes no sense"):
        choose_budget(odd.context(work_item(), linear_trainer(), stored_model(tmp_path)), LocalSteps())


def test_an_offer_capped_below_what_the_round_costs_is_declined(tmp_path: Path) -> None:
    """At most 0.1 is paid for: U(0.1) = 0.1 − 0.01 − 0.02 − 0.1 < 0, though U(0.4) = 0.06 > 0."""
    device = Device(tmp_path, {"costs": COSTS | {"fixed": 0.1}})
    assert budget_of(device) == pytest.approx(0.4)
    with pytest.raises(Declined, match="too low"):
        budget_of(device, parameters={"offer": {"expected": 0.1, "most_microcredits": 100_000}})


@given(st.floats(0.3, 3), st.floats(0, 0.3), st.floats(0, 0.3), st.floats(0.1, 2), st.floats(0, 0.3))
def test_deciding_by_other_costs_than_ones_own_gains_nothing(
    quadratic: float, linear: float, fixed: float, price: float, risk: float
) -> None:
    """Costs are never sent, so the only lie left is a decision by wrong costs, which only lowers true utility."""
    true = PrivateCosts(1.0, 0.04, 0.05)
    honest = decide(price, risk, true, 1.0, least_utility=0.0)
    lied = decide(price, risk, PrivateCosts(quadratic, linear, fixed), 1.0, least_utility=0.0)
    idle = utility(price, 0.0, risk, PrivateCosts(1.0, 0.04), 1.0)

    def worth(budget: float) -> float:
        return utility(price, budget, risk, true, 1.0) if budget else idle

    if honest.joins or not lied.joins:
        assert worth(lied.budget) <= max(worth(honest.budget), idle) + 1e-12
    else:
        assert worth(lied.budget) <= 1e-12, "it would have lost by taking part"


def test_the_delivery_says_the_budget_and_nothing_of_the_costs(tmp_path: Path) -> None:
    device = Device(tmp_path, {"costs": COSTS | {"quadratic": 1.2345678}})
    delivery = BudgetSale().prepare(device.context(work_item(), linear_trainer(), stored_model(tmp_path)))
    assert delivery.budget == pytest.approx(0.8 / 2 / 1.2345678)
    assert delivery.form == "mean"
    assert delivery.weight == 40
    assert [(charge.mechanism, charge.rho, charge.unit, charge.adjacency) for charge in delivery.privacy] == [
        ("gaussian", delivery.budget, "example", "replaced")
    ]
    assert delivery.metrics == {}  # there are no samples but those trained with
    assert "1.2345678" not in delivery.report()
    assert set(json.loads(delivery.report())) == {
        "form", "weight", "metrics", "model_index", "budget", "privacy", "members",
    }  # fmt: skip


def test_the_ledger_is_charged_what_is_sold_and_its_limit_is_kept(tmp_path: Path) -> None:
    device = Device(tmp_path, {"costs": COSTS}, Limit(3.0, 1e-5))
    context = device.context(work_item(), linear_trainer(), stored_model(tmp_path))
    with pytest.raises(Declined, match="privacy limit of the device's owner"):
        BudgetSale().prepare(context)
    assert device.ledger.spent().releases == 0
    device.ledger.set_limit(Limit(20.0, 1e-5))
    delivery = BudgetSale().prepare(context)
    (entry,) = device.ledger.history()
    assert (entry.charge.mechanism, entry.charge.unit, entry.charge.rho) == ("gaussian", "example", delivery.budget)


def test_without_noise_the_steps_are_those_of_clipped_gradient_descent(tmp_path: Path) -> None:
    context = Device(tmp_path, {"costs": COSTS}).context(work_item(), linear_trainer(), stored_model(tmp_path))
    steps = LocalSteps(steps=3, learning_rate=0.5, clip_norm=0.4)
    change = noised_descent(context.learner, context.model(), steps, 0.3, lambda total, sensitivity, multiplier: total)
    by_hand = linear_trainer()
    for _ in range(3):
        result, gradient = by_hand.parameters(), by_hand.gradient_sum(np.arange(40), 0.4)
        by_hand.load({name: value - 0.5 * gradient[name] / 40 for name, value in result.items()})
    for name, value in by_hand.parameters().items():
        assert np.allclose(change[name], value, atol=1e-6)


def test_the_noise_is_what_the_budget_buys(tmp_path: Path) -> None:
    """T = 2 steps of ρ/T: the change's noise has variance η²·T·2S²/(D²·ρ/T), measured over 4,100 numbers."""
    inputs, targets = torch.randn(40, 40, generator=torch.Generator().manual_seed(3)), torch.zeros(40).long()
    trainer = TorchLearner(torch.nn.Linear(40, 100), (inputs, targets))
    steps = LocalSteps(steps=2, learning_rate=0.5, clip_norm=1e-3)
    received: Arrays = {name: np.zeros_like(value, dtype=np.float64) for name, value in trainer.parameters().items()}
    trainer.load(received)
    descent = Descent(0.4, lambda noised: noised_descent(Guarded(trainer), received, steps, 0.4, noised))
    change = descent.tensors(SeededStream(7))
    values = np.concatenate([value.ravel() for value in change.values()])
    variance = 0.5**2 * 2 * 2 * 1e-3**2 / (40**2 * 0.4 / 2)
    signal = 2 * 0.5 * 1e-3  # η·T·S, the norm that is not noise at most
    assert values @ values / values.size == pytest.approx(variance + signal**2 / values.size, rel=0.12)


def test_a_pass_over_mini_batches_spends_what_one_noised_sum_of_it_spends(tmp_path: Path) -> None:
    """3 passes in 4 batches: replacing an example moves exactly one of the sums of each pass, each noised for ρ/3."""
    context = Device(tmp_path, {"costs": COSTS}).context(work_item(), linear_trainer(), stored_model(tmp_path))
    steps = LocalSteps(steps=3, learning_rate=1e-12, clip_norm=0.4, batches=4)

    def sums(learner: Guarded) -> list[Any]:
        asked: list[Any] = []

        def noised(total: Any, sensitivity: float, multiplier: float) -> Any:
            assert sensitivity == 0.8
            assert multiplier == pytest.approx(multiplier_of_rho(0.1))
            asked.append(np.array(total))
            return total

        noised_descent(learner, context.model(), steps, 0.3, noised, seed=5)
        return asked

    features = torch.randn(40, 4, generator=torch.Generator().manual_seed(3))
    targets = (features[:, 0] > 0).long()
    features[17] = -3.0 * features[17]
    changed = TorchLearner(torch.nn.Linear(4, 2), (features, targets))
    pairs = list(zip(sums(context.learner), sums(Guarded(changed)), strict=True))
    assert len(pairs) == 12
    moved = [float(np.linalg.norm(a - b)) for a, b in pairs]
    for start in (0, 4, 8):
        touched = [norm for norm in moved[start : start + 4] if norm > 1e-6]
        assert len(touched) == 1
        assert touched[0] <= 0.8 + 1e-6


def test_how_many_batches_there_are_is_the_tasks_to_say() -> None:
    drawn = list(LocalSteps(steps=2, batches=3).order(10, 7))
    assert [sorted(np.concatenate(drawn[at : at + 3]).tolist()) for at in (0, 3)] == [list(range(10))] * 2
    assert [LocalSteps(batches=4).parts(samples) for samples in (1, 3, 4, 40)] == [1, 3, 4, 4]
    with pytest.raises(ValueError, match="batches must be a whole number"):
        LocalSteps.of({"batches": 0})
    # 4 batches of 10: δ² = 2S²/(10² ρ/T), and four times as many moves.
    full, split = LocalSteps(steps=2), LocalSteps(steps=2, batches=4)
    assert split.noise_variance(0.5, 40) == pytest.approx(16 * full.noise_variance(0.5, 40))
    assert split.largest_change(0.5, 10**9, 10) <= 4.01 * full.largest_change(0.5, 10**8, 10), "claims gain nothing"


@settings(max_examples=30, deadline=None)
@given(
    budget=st.floats(0.01, 2.0),
    samples=st.integers(1, 500),
    steps=st.integers(1, 4),
    batches=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_an_honest_change_stays_within_what_the_platform_allows(
    budget: float, samples: int, steps: int, batches: int, seed: int
) -> None:
    """‖Δ‖ ≤ η(n·S + √n·δ(√d + t)) after n moves, whatever the gradients, all of the largest norm in one direction."""
    local, draw, elements = LocalSteps(steps, 0.7, 0.5, batches=batches), np.random.default_rng(seed), 200
    direction = np.ones(elements) / math.sqrt(elements)
    deviation, moves = math.sqrt(local.noise_variance(budget, samples)), steps * local.parts(samples)
    change = -sum(0.7 * (0.5 * direction + draw.normal(0.0, deviation, elements)) for _ in range(moves))
    assert np.linalg.norm(change) <= local.largest_change(budget, samples, elements)


@pytest.mark.parametrize(
    "training", [{"steps": 0}, {"steps": 1.5}, {"learning_rate": 0.0}, {"clip_norm": math.inf}, {"clip_norm": "1"}]
)
def test_training_that_makes_no_sense_is_refused(training: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        LocalSteps.of(training)


def test_costs_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="quadratic"):
        PrivateCosts(0.0)
