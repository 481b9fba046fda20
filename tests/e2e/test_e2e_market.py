"""The market from price to payment: every device is paid once, costs stay private, garbage is unpaid."""

from __future__ import annotations

import math
import secrets
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save

from coterie.agent.agent import Agent
from coterie.agent.home import DeviceHome
from coterie.agent.report import Delivery
from coterie.client import Platform
from coterie.errors import BadUpdate
from coterie.privacy.accounting import priced_charge
from coterie.privacy.ledger import Limit
from coterie.records import Payment, WorkItem
from tests.e2e.device_group import Shift
from tests.e2e.real_platform import PATIENT, SHAPES, RealPlatform, model, real_platform

PLANTED = 1.0271828459045
"""A cost that nothing stored outside its own device may hold."""
COSTS = {"quadratic": PLANTED, "linear": 0.04, "fixed": 0.0}
DEPOSIT, ESCROW = 9_000_000, 4_000_000


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPlatform]:
    """A separate platform: tests kill its services and search all its files."""
    with real_platform(tmp_path_factory.mktemp("market")) as result:
        yield result


def publish(platform: RealPlatform, name: str, **changes: Any) -> tuple[str, str]:
    """A market of a new publisher with credits; the task and the publisher's account."""
    made = platform.admin.create_key("publisher", f"publisher {secrets.token_hex(4)}")
    account = f"publisher:{made.principal.subject}"
    deposit(platform, account)
    settings: dict[str, Any] = {"rounds": 2, "min_devices": 2, "round_seconds": 120.0, "escrow_microcredits": ESCROW}
    settings |= {"privacy_unit": "example", "parameters": {"pricing": {"accuracy_weight": 0.02}}}
    with Platform(platform.processes.url, made.api_key, backoff=PATIENT) as publisher:
        digest = publisher.upload_model(model())
        task = publisher.create_task(name=name, preset="market", model_digests=[digest], **(settings | changes))
    return task.id, account


def deposit(platform: RealPlatform, account: str) -> None:
    for _ in range(2):  # the same key counts once
        platform.admin.deposit(account, DEPOSIT, key="opening")


def payments(platform: RealPlatform, task_id: str) -> list[Payment]:
    return list(platform.admin.payments(task=task_id))


def balance(platform: RealPlatform, account: str) -> int:
    return platform.admin.account(account).balance_microcredits


def is_sound(platform: RealPlatform) -> bool:
    return platform.admin.verify_book().sound


def trainer_of(home: DeviceHome, seed: int) -> Agent:
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(60, 4, generator=draw)
    data = (inputs, (inputs[:, 0] > 0).long())
    return Agent(home.folder, torch.nn.Linear(4, 5), data, limit=Limit(100.0, 1e-5), poll_seconds=1.0)


def stored_bytes(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in (folder / "platform").rglob("*"):
        if path.is_file():
            yield path, path.read_bytes()


def test_devices_sell_privacy_and_are_paid_price_times_budget(platform: RealPlatform) -> None:
    names = ("ann", "ben", "cas", "dear")
    homes = platform.register(*names)
    for name in names[:3]:
        homes[name].save_private_settings({"costs": COSTS})
    homes["dear"].save_private_settings({"costs": COSTS, "computing": {"kappa": 1.0}})
    task, account = publish(platform, "market")
    agents = [trainer_of(homes[name], seed) for seed, name in enumerate(names)]
    shift = Shift(platform, agents, task)
    platform.wait_until(lambda: platform.admin.task(task).enrolled == len(names))
    platform.admin.start_task(task)
    ended = platform.admin.wait_for_end(task)
    shift.wait()
    assert ended.state == "finished", shift.describe()

    ids = {agent.identity.name: agent.identity.id for agent in agents}
    made = payments(platform, task)
    assert {(p.round, p.device_id) for p in made} == {(r, ids[n]) for r in (1, 2) for n in names[:3]}
    assert len(made) == 6
    for payment in made:
        prices = platform.admin.prices(task, payment.round)
        (offer,) = [item for item in prices.offers if item.device_id == payment.device_id]
        price = offer.price_microcredits
        assert payment.amount_microcredits == math.floor(price * Fraction(payment.budget))
        best = (price / 1e6 - 0.04) / (2 * PLANTED) - offer.external_risk
        assert payment.budget == pytest.approx(best)
        assert f"{Decimal(price).scaleb(-6).normalize():f} credits × zCDP budget" in payment.because
    paid = sum(p.amount_microcredits for p in made)
    platform.wait_until(lambda: balance(platform, account) == DEPOSIT - paid)  # the rest of the escrow is back
    assert balance(platform, f"escrow:{task}") == 0
    assert balance(platform, f"device:{ids['ann']}") == sum(
        p.amount_microcredits for p in made if p.device_id == ids["ann"]
    )
    assert is_sound(platform)

    parts = {p.device_id: p for p in platform.admin.round(task, 1).participations}
    assert parts[ids["dear"]].state == "declined"
    assert "update_norm" in parts[ids["ann"]].metrics
    spent = platform.admin.privacy(ids["ann"])
    assert spent.epsilon > 0
    assert homes["ann"].ledger().spent().releases == 2
    assert homes["dear"].ledger().spent().releases == 0

    measured = homes["dear"].private_settings()["effort"]["cycles_per_sample"]
    assert measured > 0, "the device declined by its own measurement, which stayed private"
    needles = (
        b"1.02718",
        str(measured).encode(),
        struct.pack("<d", PLANTED),
        struct.pack(">d", PLANTED),
        struct.pack("<f", PLANTED),
    )
    assert needles[1] in (homes["dear"].folder / "private.json").read_bytes()
    assert needles[0] in (homes["ann"].folder / "private.json").read_bytes()
    for path, content in stored_bytes(platform.folder):
        assert not any(needle in content for needle in needles), path


def test_agnostic_prices_and_weights_by_samples_run_on_the_same_devices(platform: RealPlatform) -> None:
    """Devices that know each other: priced without leakage, and weighed by samples."""
    names = ("hal", "ida", "jim")
    homes = platform.register(*names)
    platform.meet((homes["hal"], homes["ida"]), (homes["ida"], homes["jim"]))
    for name in names:
        homes[name].save_private_settings({"costs": {"quadratic": 0.1, "linear": 0.01, "fixed": 0.0}})
    agents = [trainer_of(homes[name], seed) for seed, name in enumerate(names)]
    pricings: dict[str, dict[str, Any]] = {
        "agnostic": {"solver": "agnostic"},
        "weighed": {"solver": "exact", "curvature": 30.0},
    }
    quotes, sold = {}, {}
    for label, pricing in pricings.items():
        task, _ = publish(platform, label, rounds=1, parameters={"pricing": {"accuracy_weight": 0.02, **pricing}})
        shift = Shift(platform, agents, task)
        platform.wait_until(lambda task=task: platform.admin.task(task).enrolled == len(names))  # type: ignore[misc]
        platform.admin.start_task(task)
        assert platform.admin.wait_for_end(task).state == "finished", shift.describe()
        shift.wait()
        quotes[label] = platform.admin.prices(task, 1)
        sold[label] = {payment.device_id: payment.budget for payment in payments(platform, task)}
        assert len(sold[label]) == 3, shift.describe()
    assert {offer.external_risk for offer in quotes["agnostic"].offers} == {0.0}

    details = quotes["weighed"].details
    elements = len(model()) / 4  # as the platform has it: bytes over four
    by_hand = elements * 30.0 * (1.0 / 3.0) ** 2 / 60**2
    assert details["accuracy_weights"] == pytest.approx([by_hand] * 3)
    first = quotes["agnostic"]  # later ones know of rounds worked together
    ties = dict(zip((offer.device_id for offer in first.offers), first.details["ties"], strict=True))
    assert [ties[agent.identity.id] for agent in agents] == [1, 2, 1], "direct ties alone"
    assert all(leaked > 0.0 for leaked in details["leaked"])
    assert details["influence"] == "direct"


@pytest.fixture
def doors() -> Iterator[ExitStack]:
    """Connections that are closed when the test has ended."""
    with ExitStack() as stack:
        yield stack


class Seller:
    """A device that speaks REST itself: sells a budget, delivers what it likes."""

    def __init__(self, platform: RealPlatform, home: DeviceHome, task: str, doors: ExitStack) -> None:
        identity = home.identity()
        assert identity is not None
        self.id, self.task, self.rest = identity.id, task, doors.enter_context(platform.as_device(home))
        self.rest.enrol(task, self.id, samples=60)

    def work(self) -> WorkItem:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            items = self.rest.work(tasks=[self.task], wait_seconds=5.0).items
            if items:
                return items[0]
        raise AssertionError("no work came")

    def deliver(self, round_number: int, value: float, budget: float = 0.1) -> str:
        body = save({name: np.full(shape, value, np.float32) for name, shape in SHAPES.items()})
        report = Delivery(
            None, 60.0, budget=budget, privacy=(priced_charge(self.task, round_number, "update", budget),)
        ).report()
        return self.rest.put_update(self.task, round_number, self.id, report=report, body=body).outcome


def test_a_crash_between_upload_and_settlement_and_replays_pay_once(platform: RealPlatform, doors: ExitStack) -> None:
    homes = platform.register("replay-1", "replay-2")
    task, account = publish(platform, "crash", rounds=1)
    sellers = [Seller(platform, home, task, doors) for home in homes.values()]
    platform.admin.start_task(task)
    for seller in sellers:
        assert seller.work().price_microcredits > 0
    assert sellers[0].deliver(1, 0.01) == "accepted"
    assert sellers[0].deliver(1, 0.01) == "repeated"
    platform.kill("pricing")
    assert sellers[1].deliver(1, 0.02) == "accepted"
    platform.wait_until(lambda: next(iter(platform.admin.rounds(task))).state == "settling")
    platform.kill("aggregation")
    platform.processes.start_one("pricing")
    platform.restart("aggregation")
    assert platform.admin.wait_for_end(task).state == "finished", platform.logs()
    assert {seller.deliver(1, 0.01 * k) for k, seller in enumerate(sellers, start=1)} == {"repeated"}
    made = payments(platform, task)
    assert sorted(p.device_id for p in made) == sorted(seller.id for seller in sellers)
    price = made[0].price_microcredits
    assert [p.amount_microcredits for p in made] == [math.floor(price * Fraction(0.1))] * 2
    platform.wait_until(lambda: balance(platform, account) == DEPOSIT - sum(p.amount_microcredits for p in made))
    assert is_sound(platform)


def test_garbage_for_a_claimed_budget_is_refused_unpaid_and_recorded(platform: RealPlatform, doors: ExitStack) -> None:
    homes = platform.register("honest-1", "honest-2", "honest-3", "fraud")
    task, _ = publish(platform, "garbage", rounds=1)
    sellers = {name: Seller(platform, home, task, doors) for name, home in homes.items()}
    platform.admin.start_task(task)
    for seller in sellers.values():
        seller.work()
    with pytest.raises(BadUpdate, match="beyond"):
        sellers["fraud"].deliver(1, 50.0, budget=1.0)
    sellers["fraud"].rest.decline(task, 1, "my update was refused")
    for k, name in enumerate(("honest-1", "honest-2", "honest-3"), start=1):
        assert sellers[name].deliver(1, 0.01 * k) == "accepted"
    assert platform.admin.wait_for_end(task).state == "finished", platform.logs()
    parts = {p.device_id: p for p in platform.admin.round(task, 1).participations}
    assert parts[sellers["fraud"].id].state == "rejected"
    assert sellers["fraud"].id not in {p.device_id for p in payments(platform, task)}
    seen = list(platform.admin.interactions(sellers["fraud"].id))
    assert seen
    assert not any(item.positive for item in seen)


def test_a_spent_escrow_ends_the_task_and_never_pays_more_than_it_held(
    platform: RealPlatform, doors: ExitStack
) -> None:
    homes = platform.register("greedy-1", "greedy-2")
    task, account = publish(platform, "small", rounds=3, escrow_microcredits=600, parameters={})
    sellers = [Seller(platform, home, task, doors) for home in homes.values()]
    platform.admin.start_task(task)
    for number in (1, 2, 3):
        if platform.admin.task(task).state != "running":
            break
        for k, seller in enumerate(sellers, start=1):
            assert seller.work().round == number
            assert seller.deliver(number, 0.001 * k, budget=1000.0) == "accepted"
        platform.wait_until(lambda n=number: platform.admin.round(task, n).round.state == "done")  # type: ignore[misc]
    ended = platform.admin.wait_for_end(task)
    assert ended.state == "finished", ended.reason
    paid = sum(p.amount_microcredits for p in payments(platform, task))
    assert 0 < paid <= 600
    platform.wait_until(lambda: balance(platform, account) == DEPOSIT - paid)
    assert is_sound(platform)
