"""A figure beside the noise names a data set that the noise hides: only those of samples called public are sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from coterie.learning.torch_learner import TorchLearner
from coterie.privacy.ledger import Limit
from coterie.strategies.budget_sale import BudgetSale
from coterie.strategies.clusters import Clusters
from tests.unit.coterie.strategies.mesh_devices import Device, PostOffice, module, samples, work_for
from tests.unit.coterie.strategies.priced_round import Device as Seller
from tests.unit.coterie.strategies.priced_round import work_item
from tests.unit.coterie.strategies.test_device_strategy_budget_sale import linear_trainer, stored_model
from tests.unit.coterie.strategies.test_device_strategy_cells import Bench
from tests.unit.coterie.strategies.test_device_strategy_clusters import Circle, direction

OF_THE_NETWORK = {"heard", "noise_scale", "simulated_transfer_seconds", "step_seconds"}
COSTS = {"costs": {"quadratic": 1.0, "linear": 0.04, "fixed": 0.0}}


@pytest.mark.parametrize("noised", [True, False])
def test_a_mesh_with_noise_learns_nothing_of_a_devices_data(tmp_path: Path, noised: bool) -> None:
    office = PostOffice(tmp_path)
    ada, bobby = (Device(office, tmp_path, name) for name in ("ada", "bobby"))
    report = ada.round(work_for(ada, [bobby], noised=noised, privacy="partial"))
    assert set(report.metrics) <= OF_THE_NETWORK
    assert json.loads(report.report())["public_metrics"] is True
    clear = bobby.round(work_for(bobby, [ada], privacy="none"))
    assert {"loss", "online_loss", "regret"} <= set(clear.metrics)
    assert "public_metrics" not in json.loads(clear.report())


def test_the_papers_scale_of_noise_is_made_of_data_and_stays_at_home(tmp_path: Path) -> None:
    office = PostOffice(tmp_path)
    ada, bobby = (Device(office, tmp_path, name) for name in ("ada", "bobby"))
    for number in (1, 2):
        report = ada.round(work_for(ada, [bobby], number, noised=True, terms={"sensitivity": "paper"}))
    assert set(report.metrics) <= OF_THE_NETWORK - {"noise_scale"}


def test_mesh_device_that_noises_everything_sends_no_first_round_metric(tmp_path: Path) -> None:
    """The common start holds none of its data, so nothing is charged; its losses are its own all the same."""
    office = PostOffice(tmp_path)
    careful = Device(office, tmp_path, "careful", limit=Limit(8.0, 1e-5))
    report = careful.round(work_for(careful, [Device(office, tmp_path, "bobby")], privacy="none"))
    assert set(report.metrics) <= OF_THE_NETWORK


@pytest.mark.parametrize("role", ["member", "solo"])
def test_clusters_with_noise_learn_nothing_of_a_members_data(tmp_path: Path, role: str) -> None:
    cluster = Circle(tmp_path)
    cluster.acquaint("a", "h")
    peers = (cluster.peer("h", "head"),) if role == "member" else ()
    for privacy, expected in (("trust", {}), ("none", {"accuracy": 0.5})):
        work = cluster.work(role, peers, privacy=privacy, noise_multiplier=0.5, round=1 + len(expected))
        assert Clusters().prepare(cluster.context("a", work, direction(1))).metrics == expected


def test_cells_with_noise_learn_only_the_chosen_model(tmp_path: Path) -> None:
    bench = Bench(tmp_path, slope=2.0)
    bench.limit = Limit(1e6, 1e-5, allow_raw=True)
    report = bench.round([-2.0, 1.0], privacy="optimised")
    assert (report.model_index, report.metrics) == (1, {})


def test_a_market_learns_only_metrics_of_public_samples(tmp_path: Path) -> None:
    trainer = linear_trainer()
    seller = Seller(tmp_path, COSTS)
    assert BudgetSale().prepare(seller.context(work_item(), trainer, stored_model(tmp_path))).metrics == {}


def test_figures_of_public_samples_are_those_of_public_samples() -> None:
    public, private = samples(1), samples(2)
    trainer = TorchLearner(module(), private, test_data=public)
    expected = torch.nn.functional.cross_entropy(module()(public[0]), public[1])
    assert trainer.evaluate()["loss"] == pytest.approx(float(expected.detach()), rel=1e-6)
