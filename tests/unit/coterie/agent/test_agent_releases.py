"""A charge is bound to the bytes released: the very same bytes go out again for nothing, any others are charged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coterie.agent.agent import Agent
from coterie.agent.cache import BlobCache
from coterie.agent.home import Outbox
from coterie.errors import BadHome, Declined
from coterie.learning import measurement
from coterie.learning.training import model_bytes
from coterie.privacy.ledger import Limit, PrivacyLedger
from coterie.records import WorkItem
from coterie.records.enums import RoundMode
from tests.e2e.stand_in import StandIn
from tests.unit.coterie.agent.test_agent_rounds import module, samples

LARGE = Limit(1e4, 1e-5, "device")


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with StandIn(model_bytes(module()), rounds=3, training={"epochs": 1, "batch_size": 8}) as server:
        server.work = {"privacy": "uniform", "noise_multiplier": 2.0}
        yield server


class Phone:
    """Starts the device in one folder, as often as it is killed."""

    def __init__(self, stand_in: StandIn, home: Path) -> None:
        self.stand_in, self.home, self.started = stand_in, home, list[Agent]()

    def __call__(self, limit: Limit | None = LARGE) -> Agent:
        agent = Agent.register(
            self.stand_in.url, "ct_t.s", name="phone", home=self.home, model=module(), data=samples(), limit=limit,
            cache=BlobCache(self.home / "cache"),
        )  # fmt: skip
        self.started.append(agent)
        agent.join("tiny")
        return agent


@pytest.fixture
def phone(stand_in: StandIn, tmp_path: Path) -> Iterator[Phone]:
    made = Phone(stand_in, tmp_path)
    yield made
    for agent in made.started:
        agent.close()


def item_of(stand_in: StandIn, **changes: Any) -> WorkItem:
    return replace(WorkItem.from_json(stand_in._item()), **changes)


def body_of(agent: Agent, work: WorkItem) -> bytes:
    prepared = agent._bench.prepare(work)
    assert prepared.body is not None
    return prepared.body.read_bytes()


def charges_of(agent: Agent) -> list[str]:
    return [entry.charge.purpose for entry in agent.home.ledger().history()]


def test_varying_a_work_item_buys_no_noise_for_nothing(stand_in: StandIn, phone: Phone, tmp_path: Path) -> None:
    """The average of a thousand noisy copies has no noise; each copy costs."""
    agent = phone()
    variations = [item_of(stand_in, self_weight=1.0 + number / 100) for number in range(10)]
    bodies = {body_of(agent, work) for work in variations}
    assert len(bodies) == len(charges_of(agent)) == 10
    assert agent.home.ledger().spent().epsilon > 4.0
    assert charges_of(agent)[:3] == ["update", "update#2", "update#3"]


def test_the_same_work_gives_the_same_bytes_for_one_charge(stand_in: StandIn, phone: Phone, tmp_path: Path) -> None:
    agent = phone()
    work = item_of(stand_in)
    bodies = {body_of(agent, replace(work, deadline_at=work.deadline_at + number)) for number in range(5)}
    assert (len(bodies), charges_of(agent)) == (1, ["update"])


def test_a_round_asked_again_by_a_restored_platform_is_a_new_charge(
    stand_in: StandIn, phone: Phone, tmp_path: Path
) -> None:
    agent = phone()
    first = body_of(agent, item_of(stand_in))
    agent.home.outbox.forget_before("tsk_1", 3)  # as after round 3
    again = body_of(agent, item_of(stand_in))
    assert first != again
    assert charges_of(agent) == ["update", "update#2"]


def test_a_limit_ends_the_copies(stand_in: StandIn, phone: Phone, tmp_path: Path) -> None:
    agent = phone(Limit(3.0, 1e-5, "device"))
    made = 0
    with pytest.raises(Declined, match="limit"):
        for number in range(10):
            body_of(agent, item_of(stand_in, self_weight=1.0 + number / 100))
            made += 1
    assert made == len(charges_of(agent)) == 2


class Killed(BaseException):
    """kill -9, as far as a test in one process can tell."""


@pytest.mark.parametrize("moment", ["stored, not charged", "charged, not prepared"])
def test_a_device_killed_around_its_charge_sends_the_bytes_it_stored(
    stand_in: StandIn, phone: Phone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def die(*arguments: Any, **options: Any) -> None:
        raise Killed

    work = item_of(stand_in)
    agent = phone()
    owner: type = PrivacyLedger if moment == "stored, not charged" else Outbox
    name = "charge" if owner is PrivacyLedger else "put"
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, die)
        with pytest.raises(Killed):
            agent._bench.prepare(work)
    (stored,) = (tmp_path / "outbox").glob("*.release")
    content = stored.read_bytes()
    again = phone()
    assert body_of(again, work) == content.split(b"\n", 2)[2]
    assert charges_of(again) == ["update"]


def test_stored_bytes_that_were_damaged_are_made_again_and_charged(
    stand_in: StandIn, phone: Phone, tmp_path: Path
) -> None:
    agent, work = phone(), item_of(stand_in)
    first = body_of(agent, work)
    (stored,) = (tmp_path / "outbox").glob("*.release")
    content = bytearray(stored.read_bytes())
    content[-1] ^= 1
    stored.write_bytes(content)
    for path in (tmp_path / "outbox").glob("*.json"):
        path.unlink()
    assert body_of(agent, work) != first
    assert charges_of(agent) == ["update", "update#2"]


def test_a_device_whose_outbox_was_lost_pays_for_what_it_makes_again(
    stand_in: StandIn, phone: Phone, tmp_path: Path
) -> None:
    agent, work = phone(), item_of(stand_in)
    first = body_of(agent, work)
    shutil.rmtree(tmp_path / "outbox")
    assert body_of(agent, work) != first
    assert charges_of(agent) == ["update", "update#2"]


def test_a_decline_tells_the_platform_no_figure_of_the_ledger(stand_in: StandIn, tmp_path: Path) -> None:
    """Neither what was spent nor the limit: a platform that knew them could spend the rest to the last bit."""
    stand_in.work = {"privacy": "uniform", "noise_multiplier": 1.0}
    agent = Agent.register(
        stand_in.url, "ct_t.s", name="phone", home=tmp_path, model=module(), data=samples(),
        limit=Limit(6.5, 1e-5, "device"), cache=BlobCache(tmp_path / "cache"),
    )  # fmt: skip
    agent.join("tiny")
    agent.run()
    assert len(stand_in.declined) == 2
    for _, why in stand_in.declined:
        assert "ε" not in why
        assert not any(character.isdigit() for character in why)


def test_device_without_its_ledger_is_refused_though_no_other_sign_remains(phone: Phone, tmp_path: Path) -> None:
    phone()
    (tmp_path / "ledger.db").unlink()
    with pytest.raises(BadHome, match="restore it from a backup"):
        phone()
    assert not (tmp_path / "ledger.db").exists()


def test_owner_who_allows_nothing_raw_sends_nothing_to_task_without_noise(
    stand_in: StandIn, phone: Phone, caplog: pytest.LogCaptureFixture
) -> None:
    stand_in.work = {"privacy": "none"}
    agent = phone(Limit(8.0, 1e-5))
    assert "the owner's limit allows no update without noise" in caplog.text
    assert {result.outcome for result in agent.run().rounds} == {"declined"}
    assert stand_in.updates == {}


def test_joining_without_noise_is_consent_where_no_limit_is_set(
    stand_in: StandIn, phone: Phone, caplog: pytest.LogCaptureFixture
) -> None:
    stand_in.work = {"privacy": "none"}
    agent = phone(None)
    assert "joining is the consent" in caplog.text
    assert {result.outcome for result in agent.run().rounds} == {"accepted"}
    assert agent.home.ledger().spent().raw_releases == 3
    assert stand_in.reports[1, "dev_1"]["privacy"][0]["mechanism"] == "raw"


def test_task_with_promised_noise_gets_nothing_raw_when_work_differs(stand_in: StandIn, phone: Phone) -> None:
    agent = phone(None)  # joined as "uniform"
    with pytest.raises(Declined, match="joined the task with privacy 'uniform'"):
        agent._bench.prepare(item_of(stand_in, privacy="none"))


def test_task_with_promised_noise_gets_no_metric_when_measuring_differs(
    stand_in: StandIn, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(measurement, "tell", lambda platform, work, metrics: reported.append(dict(metrics)))
    agent = phone(None)  # joined as "uniform", its samples are private
    agent._bench.measure(item_of(stand_in, measure=1, privacy="none"))
    agent._bench.measure(item_of(stand_in, measure=1))
    assert reported == [{}, {}]


@pytest.mark.parametrize("careful", ["by its limit", "by its circle", "by the task's sums"])
def test_who_sends_no_bare_update_measures_nothing_of_its_own_either(
    stand_in: StandIn, phone: Phone, monkeypatch: pytest.MonkeyPatch, careful: str
) -> None:
    stand_in.work = {"privacy": "none"}
    stand_in.promised = {"sums": {"mode": "secure"}} if careful == "by the task's sums" else {}
    reported: list[Any] = []
    monkeypatch.setattr(measurement, "tell", lambda platform, work, metrics: reported.append(dict(metrics)))
    agent = phone(Limit(8.0, 1e-5) if careful == "by its limit" else None)
    if careful == "by its circle":
        agent.home.save_circle(replace(agent.home.circle(), secure_only=True))
    agent._bench.measure(item_of(stand_in, measure=1))
    assert reported == [{}]


def test_metrics_stored_beside_noise_stay_home_when_work_claims_no_noise(stand_in: StandIn, phone: Phone) -> None:
    agent = phone(None)
    item = item_of(stand_in)
    agent.home.outbox.put(item.task_id, item.round, item.basis, '{"form": "mean", "metrics": {"loss": 0.5}}', b"")
    again = agent._bench.prepare(replace(item, privacy="none"))
    assert json.loads(again.report)["metrics"] == {}


def test_neither_do_they_travel_when_the_task_says_that_late_work_counts(stand_in: StandIn, phone: Phone) -> None:
    agent = phone(None)
    item, stored = item_of(stand_in), '{"form": "mean", "weight": 1, "metrics": {"loss": 0.5}}'
    agent.home.outbox.put(item.task_id, item.round, item.basis, stored, stand_in.model)
    joined = agent._enrolments[item.task_id]
    shown = replace(joined.specification, mode=RoundMode.ASYNCHRONOUS)
    agent._enrolments._tasks[item.task_id] = replace(joined, specification=shown)
    agent._bench.finish_left_over(replace(item, round=item.round + 1))
    assert stand_in.reports[item.round, "dev_1"]["metrics"] == {}


def test_joining_shows_the_cost_of_all_rounds_and_declines_less_noise(
    stand_in: StandIn, phone: Phone, caplog: pytest.LogCaptureFixture
) -> None:
    stand_in.promised = {"privacy": {"target_epsilon": 4.0, "delta": 1e-5, "noise_multiplier": 2.0}}
    agent = phone(Limit(4.0, 1e-5, "device"))
    assert "ε = 3.71 for all 3 rounds together at δ = 1e-05, the device left out" in caplog.text
    assert agent._bench.prepare(item_of(stand_in, noise_multiplier=2.0)) is not None
    with pytest.raises(Declined, match="less noise than the task promised"):
        agent._bench.prepare(item_of(stand_in, round=2, noise_multiplier=1.9))


def test_no_figure_of_the_training_samples_travels_beside_a_noised_update(stand_in: StandIn, phone: Phone) -> None:
    """Its exact loss on its training samples names a device's data set; the noise does not cover it."""
    phone().run()
    assert [stand_in.reports[number, "dev_1"]["metrics"] for number in (1, 2, 3)] == [{}, {}, {}]
