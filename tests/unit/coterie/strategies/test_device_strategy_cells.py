"""A device among several models: it finds its own, fetches only likely ones, and pays for what it gives away."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from coterie.agent.home import DeviceHome
from coterie.agent.mail import Mail
from coterie.agent.report import Delivery
from coterie.errors import Declined
from coterie.learning.model_choice import likely_models
from coterie.learning.torch_learner import TorchLearner
from coterie.learning.training import model_bytes
from coterie.privacy.grid import noised, noised_query
from coterie.privacy.ledger import Limit
from coterie.privacy.simulation import SeededStream
from coterie.records import WorkItem
from coterie.strategies import strategy_for
from coterie.strategies.cells import Cells, read_history
from coterie.strategies.context import RoundContext

LIMIT = Limit(1e4, 1e-5, allow_raw=True)


class Bench:
    """One device with data y = sign · x (regression on one number), and models in a folder."""

    def __init__(self, folder: Path, slope: float, limit: Limit = LIMIT) -> None:
        folder.mkdir(exist_ok=True)
        inputs = torch.linspace(-1.0, 1.0, 20)[:, None]
        self.home = DeviceHome(folder / "home")
        self.trainer = TorchLearner(line(0.0), (inputs, slope * inputs), loss=torch.nn.functional.mse_loss)
        self.folder, self.limit, self.fetched = folder, limit, list[str]()
        self.word = 3

    def model(self, slope: float) -> str:
        """Stores a model; its name in place of a digest."""
        name = f"slope{slope:g}"
        (self.folder / name).write_bytes(model_bytes(line(slope)))
        return name

    def fetch(self, digest: str) -> Path:
        self.fetched.append(digest)
        return self.folder / digest

    def context(self, slopes: list[float], before: list[float] | None = None, **changes: Any) -> RoundContext:
        """Round's context with models of these slopes, moved from those before."""
        work: dict[str, Any] = {
            "task_id": "tsk_1", "round": 1, "attempt": 1, "role": "solo",
            "model_digests": tuple(self.model(slope) for slope in slopes),
            "model_lines": tuple(range(len(slopes))),
            "previous_digests": tuple(self.model(slope) for slope in before or ()),
            "deadline_at": 0.0, "plan_version": 1, "noise_multiplier": 2.0, "noised": False, "batch_size": 0,
            "self_weight": 0.0, "peers": (), "price_microcredits": 0, "external_risk": 0.0, "base_microcredits": 0,
            "slope_microcredits": 0, "training": {"epochs": 2, "learning_rate": 0.5}, "parameters": {},
            "privacy_unit": "example", "topology": "cells", "privacy": "none", "incentive": "none",
            "max_update_bytes": 10**6, "rounds": 5,
        }  # fmt: skip
        return RoundContext(
            work=WorkItem(**(work | changes)),
            device_id="dev_1",
            keys=self.home.keys(),
            training=self.trainer,
            samples=20,
            mail=cast(Mail, None),
            ledger=self.home.ledger(self.limit),
            private={},
            memory=self.home.memory("tsk_1"),
            outbox=self.home.outbox,
            fetch=self.fetch,
            seed=1,
            noise=lambda: SeededStream(self.word),
        )

    def round(self, slopes: list[float], before: list[float] | None = None, **changes: Any) -> Delivery:
        """What the device hands in."""
        return Cells().prepare(self.context(slopes, before, **changes))


def line(slope: float) -> torch.nn.Module:
    module = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        module.weight.fill_(slope)
    return module


def weight(delivery: Delivery) -> float:
    assert delivery.tensors is not None
    values: NDArray[Any] = np.asarray(delivery.tensors["weight"])
    return float(values[0, 0])


def test_the_first_round_goes_by_loss_alone_and_reports_the_choice(tmp_path: Path) -> None:
    bench = Bench(tmp_path, slope=2.0)
    delivery = bench.round([-2.0, 1.0])
    assert delivery.model_index == 1
    assert (delivery.metrics["model"], delivery.metrics["compared"]) == (1.0, 2.0)
    assert weight(delivery) > 0.0
    assert (delivery.weight, [c.mechanism for c in delivery.privacy], delivery.budget) == (20.0, ["raw"], 0.0)
    assert isinstance(strategy_for(bench.context([0.0, 0.0]).work), Cells)


def test_model_that_moved_devices_way_wins_over_slightly_better_one(tmp_path: Path) -> None:
    """Slopes 0.1 and 0 for a device of slope 2: line 0 has less loss but moved away (from 1 to 0.1), line 1 came."""
    moved: list[float] = [1.0, -1.0]
    assert Bench(tmp_path / "a", 2.0).round([0.1, 0.0], moved).model_index == 1
    by_loss = {"topology": {"identity_weight": 0.0}}
    assert Bench(tmp_path / "b", 2.0).round([0.1, 0.0], moved, parameters=by_loss).model_index == 0


def test_data_that_drift_change_the_chosen_model_within_two_rounds(tmp_path: Path) -> None:
    """A settled device compares its own model alone; the round after its loss rose it compares all of them again."""
    bench = Bench(tmp_path, slope=2.0)
    reported = [bench.round([-2.0, 2.0], round=number) for number in range(1, 6)]
    assert [item.model_index for item in reported] == [1] * 5
    one = 4.0  # a model is one number of four bytes
    assert [item.metrics["broadcast_bytes"] for item in reported] == [2 * one] * 3 + [one] * 2
    inputs = torch.linspace(-1.0, 1.0, 20)[:, None]
    bench.trainer = TorchLearner(line(0.0), (inputs, -2.0 * inputs), loss=torch.nn.functional.mse_loss)
    drifted = [bench.round([-2.0, 2.0], round=number) for number in (6, 7, 8)]
    assert [item.model_index for item in drifted] == [1, 0, 0]
    assert drifted[1].metrics["compared"] == 2.0


def test_settled_devices_fetch_their_likely_models_only(tmp_path: Path) -> None:
    bench = Bench(tmp_path, slope=2.0)
    for number in (1, 2, 3):
        bench.round([-2.0, -1.0, 1.0], round=number)
    assert bench.fetched.count("slope-2") == 3
    bench.fetched.clear()
    delivery = bench.round([-2.0, -1.0, 1.0], round=4)
    assert set(bench.fetched) == {"slope1"}
    assert (delivery.model_index, delivery.metrics["compared"]) == (2, 1.0)


def test_the_history_survives_on_disk_and_a_repeated_round_counts_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, slope=2.0)
    bench.round([-2.0, 1.0], round=1)
    bench.round([3.0, -1.0], round=2)
    bench.round([3.0, -1.0], round=2)
    result = read_history(bench.context([0.0, 0.0], round=3))
    assert {number: item.model for number, item in result.items()} == {1: 1, 2: 0}
    assert result[1].margin > 0
    assert result[1].loss > 0
    assert read_history(bench.context([0.0, 0.0], round=2)).keys() == {1}


def test_a_device_that_settled_on_the_wrong_model_finds_its_own(tmp_path: Path) -> None:
    """Two models of nearly the same loss: whichever it takes at first, the other one then comes its way."""
    bench = Bench(tmp_path, slope=2.0)
    for number in (1, 2, 3, 4):
        bench.round([0.1, 0.05], round=number)
    assert bench.round([0.1, 1.5], round=5).model_index == 1


def test_only_first_choices_among_near_equal_models_are_drawn(tmp_path: Path) -> None:
    """Slopes 0.1 and 0.05 for slope 2: relative losses 0.974 and 1.026, a lead of 0.026 for line 0 at λ = 0.5."""
    first: dict[int, list[int]] = {1: [], 2: [], 3: [], 4: []}
    for device in range(12):
        bench = Bench(tmp_path / str(device), slope=2.0)
        bench.word = device
        for number, chosen in first.items():
            chosen.append(bench.round([0.1, 0.05], round=number).model_index)
    assert all(0 < sum(first[number]) < 12 for number in (1, 2, 3))
    assert sum(first[4]) == 0


def test_a_device_draws_nothing_where_a_model_leads_clearly(tmp_path: Path) -> None:
    """Slopes 0.5 and 0: relative losses 0.72 and 1.28, a lead of 0.28."""
    for device in range(8):
        bench = Bench(tmp_path / str(device), slope=2.0)
        bench.word = device
        assert bench.round([0.5, 0.0]).model_index == 0


def test_repeated_round_gives_the_same_model_despite_unknown_enum_values(tmp_path: Path) -> None:
    """The release of a round is stored: were another model drawn, its bytes would be handed in for the wrong one."""
    chosen = []
    for device in range(8):
        bench = Bench(tmp_path / str(device), slope=2.0)
        bench.word = device
        once = bench.round([0.1, 0.05]).model_index
        bench.word = device + 100
        assert bench.round([0.1, 0.05]).model_index == once
        chosen.append(once)
    # Everything the platform knows, seed and round and models, is the same for all of them.
    assert set(chosen) == {0, 1}


def test_a_settled_device_looks_at_all_models_when_its_loss_rises(tmp_path: Path) -> None:
    """Its own model turns away after it had led clearly, and another has become its own."""
    bench = Bench(tmp_path, slope=2.0)
    for number in (1, 2, 3):
        bench.round([-2.0, -1.0, 1.0], round=number)
    assert bench.round([2.0, -1.0, 0.5], round=4).metrics["compared"] == 1.0
    result = bench.round([2.0, -1.0, 0.5], round=5)
    assert (result.metrics["compared"], result.model_index) == (3.0, 0)


def test_with_noise_the_fetched_models_follow_from_reported_choices(tmp_path: Path) -> None:
    """The platform sees the fetched models, but not the lead of the own model or a rise of its loss."""
    bench, slopes, reported = Bench(tmp_path, slope=2.0), [2.0, -2.0, 6.0], list[int]()
    for number in range(1, 12):
        bench.fetched.clear()
        if number == 6:
            bench.trainer = TorchLearner(line(0.0), (torch.ones(20, 1), torch.zeros(20, 1)), loss=torch.nn.MSELoss())
        delivery = bench.round(slopes, round=number, privacy="optimised", rounds=20)
        assert sorted(set(bench.fetched)) == sorted(bench.model(slopes[k]) for k in likely_models(reported, 3))
        assert delivery.model_index is not None
        reported.append(delivery.model_index)
    assert set(reported[:5]) == {0}


def test_optimised_noise_costs_two_over_the_multiplier_squared(tmp_path: Path) -> None:
    """z = 2: ρ = 2/4 = 0.5 per round, charged before anything is made."""
    bench = Bench(tmp_path, slope=2.0)
    delivery = bench.round([-2.0, 1.0], privacy="optimised")
    [charge] = delivery.privacy
    assert (charge.adjacency, charge.rho, charge.unit, delivery.budget) == ("replaced", 0.5, "example", 0.5)
    [entry] = bench.home.ledger().history()
    assert (entry.charge.rho, entry.charge.unit, entry.charge.purpose) == (0.5, "example", "update")


def test_steps_on_clipped_gradients_share_the_rounds_noise(tmp_path: Path) -> None:
    """2 steps from slope 1, rate 0.5, clip M: w ← w − 0.5 (Σ clipped + √2 z M n) / 20, worked out beside."""
    bench = Bench(tmp_path, slope=2.0)
    parameters = {"privacy": {"clip": 0.25}}
    delivery = bench.round([-2.0, 1.0], privacy="optimised", parameters=parameters, noise_multiplier=2.0)
    x, w, stream = np.linspace(-1.0, 1.0, 20), 1.0, SeededStream(3)
    for _ in range(2):
        gradients = np.clip(2 * (w * x - 2.0 * x) * x, -0.25, 0.25)
        # The deviation √2·z·M as a multiplier of the sensitivity 2M, and 1/4096 for single precision.
        noisy = noised_query(np.array([gradients.sum()]), 0.5 * (1 + 1 / 4096), math.sqrt(2) * 2.0 / 2.0, stream)
        w -= 0.5 * float(noisy[0]) / 20
    assert weight(delivery) == pytest.approx(w - 1.0, abs=1e-5)


def test_hiding_a_device_clips_the_whole_change_and_noises_it_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, slope=50.0)
    parameters = {"privacy": {"clip": 0.25}}
    delivery = bench.round([-2.0, 1.0], privacy="optimised", privacy_unit="device", parameters=parameters)
    expected = float(noised(np.array([0.25]), 0.25, 2.0, SeededStream(3))[0])
    assert weight(delivery) == pytest.approx(expected, abs=1e-5)
    assert delivery.privacy[0].unit == "device"


def test_what_cannot_be_protected_or_paid_for_is_declined(tmp_path: Path) -> None:
    with pytest.raises(Declined, match="promises noise"):
        Bench(tmp_path / "a", 2.0).round([0.0, 1.0], privacy="optimised", noise_multiplier=0.0)
    with pytest.raises(Declined, match="privacy limit of the device's owner"):
        Bench(tmp_path / "b", 2.0, Limit(0.5, 1e-5)).round([0.0, 1.0], privacy="optimised")
    empty = Bench(tmp_path / "c", 2.0)
    empty.trainer = TorchLearner(line(0.0), (torch.zeros(0, 1), torch.zeros(0, 1)))
    with pytest.raises(Declined, match="no training samples now"):
        empty.round([0.0, 1.0])
