"""A mesh device whose data grows: 300 samples at first, 10 to 30 more each round, and its regret at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from coterie.learning.mixing import MeshState
from coterie.strategies.device_state import DeviceState, Stream
from tests.unit.coterie.strategies.mesh_devices import Device, PostOffice, samples, work_for

ROUNDS = 6


def loss_and_slope(weights: Any, inputs: Any, targets: Any) -> tuple[float, Any]:
    """Mean cross entropy of a linear model, and its gradient, in plain numpy."""
    matrix, shift = weights[:12].reshape(3, 4), weights[12:]
    scores = inputs @ matrix.T + shift
    scores = scores - scores.max(axis=1, keepdims=True)
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    rows = np.arange(len(targets))
    loss = float(-np.log(shares[rows, targets]).mean())
    shares[rows, targets] -= 1.0
    return loss, np.concatenate([(shares.T @ inputs).ravel(), shares.sum(axis=0)]) / len(targets)


def test_growing_device_joins_every_round_and_reports_best_model_regret(tmp_path: Path) -> None:
    """Against the minimum found apart, by another program on the same batches; without neighbours, so nothing mixes."""
    office = PostOffice(tmp_path)
    everything, draw = samples(5, 600), np.random.default_rng(1)
    # Labels that no linear model gets right, so that the minimum is inside and not at infinity.
    everything[1][::3] = 2 - everything[1][::3]
    ada, size = Device(office, tmp_path, "ada", data=tuple(item[:300] for item in everything)), 300
    sizes = []
    for number in range(1, ROUNDS + 1):
        reported = ada.round(work_for(ada, [], round=number, rounds=ROUNDS, privacy="none"))
        sizes.append(size)
        size += int(draw.integers(10, 31))
        ada.data = tuple(item[:size] for item in everything)
    state = ada.state()
    assert [step for step, *_ in state.growth] == list(range(ROUNDS))
    batches, stream = [], Stream(5)
    for held in sizes:
        batch, stream = stream.take(held, 8)
        batches.append(batch)
    assert all(np.array_equal(one, other) for one, other in zip(batches, state.seen(), strict=True))
    seen = torch.from_numpy(np.concatenate(batches))
    inputs, targets = everything[0][seen].double().numpy(), everything[1][seen].numpy()
    objective: Any = lambda w: loss_and_slope(w, inputs, targets)  # noqa: E731 - the stubs know no tuple of Any
    best: Any = minimize(objective, np.zeros(15), jac=True, method="BFGS", tol=1e-8)
    assert reported.metrics["regret"] == pytest.approx(state.online_loss - ROUNDS * best.fun, abs=2e-3)
    assert reported.metrics["regret"] > 0.0
    assert DeviceState.load(ada.memory) is not None


def test_a_device_that_began_before_batches_were_noted_has_no_such_regret() -> None:
    state = DeviceState(MeshState.start([0.0]), Stream(1), steps=3)
    assert state.grown(10, 2) == ()
    assert state.seen() == []


def test_a_device_whose_data_shrinks_below_a_batch_goes_on(tmp_path: Path) -> None:
    office, all_of_it = PostOffice(tmp_path), samples(5, 40)
    ada = Device(office, tmp_path, "ada", data=all_of_it)
    for number, size in ((1, 40), (2, 5), (3, 20)):
        ada.data = tuple(item[:size] for item in all_of_it)
        reported = ada.round(work_for(ada, [], round=number, rounds=3, privacy="none"))
        assert reported.weight == size
    assert [len(batch) for batch in ada.state().seen()] == [8, 5, 8]
    assert "regret" not in reported.metrics  # some of what was seen is gone
