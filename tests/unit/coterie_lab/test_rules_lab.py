"""Training under attack: many devices at once, mixing, data and sybils."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from coterie_lab import crowd as crowd_module
from coterie_lab.crowd import Crowd, Setting, fashion
from coterie_lab.images import ImageSet
from coterie_lab.rules import mixed, run_with_sybils
from tests.unit.aggregation.domain import rule_oracles as oracle


def setting(**changes: Any) -> Setting:
    """All samples are equal, so the draw of batches does not matter."""
    inputs = torch.tensor([0.5, -1.0, 2.0]).repeat(40, 1)
    labels = torch.full((40,), 3)
    training = {"hidden": 4, "rounds": 6, "radius": 1.0, "steps": 3, "batch": 8, "rate": 0.2} | changes
    return Setting("made up", inputs, labels, (inputs, labels), **training)


def by_autograd(model: np.ndarray, given: Setting) -> np.ndarray:
    flat = torch.tensor(model, dtype=torch.float32)
    for _ in range(given.steps):
        flat.requires_grad_(True)
        w1, b1, w2, b2 = torch.split(flat, [12, 4, 40, 10])
        outputs = torch.relu(given.inputs[:8] @ w1.reshape(3, 4) + b1) @ w2.reshape(4, 10) + b2
        loss = torch.nn.functional.cross_entropy(outputs, given.labels[:8])
        (gradient,) = torch.autograd.grad(loss, flat)
        flat = (flat - given.rate * gradient).detach()
    return np.asarray(flat.numpy() - model)


def test_all_devices_step_at_once_as_each_would_by_itself() -> None:
    given = setting()
    crowd = Crowd(given, 2, seed=1)
    np.testing.assert_allclose(
        crowd.changes(range(0)), np.repeat(by_autograd(crowd.model, given)[None], 2, 0), atol=1e-6
    )
    honest, turned = crowd.changes(range(1, 2))
    assert np.abs(honest - turned).max() > 0.01, "only the chosen device trains on flipped labels"


def test_mixing_before_byzfls_rules_is_byzfls_own() -> None:
    updates = np.random.default_rng(3).normal(size=(9, 30))
    np.testing.assert_allclose(mixed(updates, 3), oracle.byzfl("aggregators.preaggregators").NNM(f=3)(updates))


def test_fashion_is_averaged_over_squares_and_standardised(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = torch.arange(2 * 16, dtype=torch.float32).reshape(2, 1, 4, 4)
    images = ImageSet("Fashion-MNIST", pixels, torch.tensor([1, 2]), pixels[:1], torch.tensor([1]))
    monkeypatch.setattr(crowd_module, "image_set", lambda *_: images)
    result = fashion(None)
    assert result.inputs.shape == (2, 4)
    assert float(result.inputs.mean()) == pytest.approx(0.0, abs=1e-6)
    assert result.inputs[0].argsort().tolist() == [0, 1, 2, 3]
    assert torch.equal(result.test[0], result.inputs[:1])


def test_sybils_lose_to_trust_and_win_against_the_mean() -> None:
    given = setting(rounds=2)
    assert 0.0 <= run_with_sybils(given, "mean", "sign flip", 1) <= 1.0
    assert run_with_sybils(given, "trust+mean", "sign flip", 1) == 1.0
