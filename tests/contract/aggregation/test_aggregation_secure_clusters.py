"""Clusters as secure sums: no device, its head included, sees a member's update; lone devices are added."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.secure_sums.terms import Terms
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.strategies import strategy_for
from services.kit.errors import CoterieError
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import Principal, set_principal
from services.topology.domain.quality import Calibration, QualityModel
from tests.contract.aggregation.committee import SECURE, Committee
from tests.contract.aggregation.conftest import Client, ServiceFixture, eventually

FRIENDS, LONERS = [f"dev_{letter}" for letter in "abcd"], ["dev_s", "dev_t"]


async def society(service: ServiceFixture, folder: Path, **changes: Any) -> tuple[Client, Committee, str]:
    """Four friends that are one cluster, and two that know no other."""
    service.fakes.trust = {(a, b): 0.9 for a in FRIENDS for b in FRIENDS if a < b}
    client = await service.start()
    people = Committee.of(service, client, folder, [*FRIENDS, *LONERS])
    values: dict[str, Any] = {
        "preset": "clusters", "rounds": 1, "min_devices": 4, "quorum": 0.6, "parameters": to_struct(SECURE),
    } | changes  # fmt: skip
    task = await client.create([*FRIENDS, *LONERS], **values)
    await client.start_task(task.id)
    return client, people, task.id


def change_of(device: str) -> list[float]:
    return [float(v) for v in np.random.default_rng(ord(device[-1])).normal(0, 0.1, 3).astype(np.float32)]


async def deliver_masked(people: Committee, device: str) -> pb.WorkItem:
    item = await people.client.get_work(device)
    terms = Terms.read(item.sum)
    upload, signature = people.masked(device, terms, change_of(device), item.self_weight)
    await people.send(item, device, terms, upload, signature, weight=item.self_weight)
    return item


async def deliver_alone(client: Client, device: str) -> pb.WorkItem:
    item = await client.get_work(device)
    assert (item.role, item.sum) == (words.ROLE_SOLO, "")
    await client.deliver(item, device, change_of(device), weight=item.self_weight, metrics={})
    return item


async def test_cluster_sum_equals_its_members_and_head_sees_no_single_update(
    service: ServiceFixture, tmp_path: Path
) -> None:
    client, people, task_id = await society(service, tmp_path)
    await people.attend(lambda: people.has_work("dev_a"), seconds=320.0)  # the first plan of a busy machine
    qualities: dict[str, float] = {}
    for device in LONERS:
        item = await deliver_alone(client, device)
        assert item.noise_multiplier == pytest.approx(0.6)
        qualities[device] = item.self_weight
    for device in FRIENDS:
        item = await deliver_masked(people, device)
        terms = Terms.read(item.sum)
        assert list(item.peers) == []
        assert (terms.cohort, terms.count, len(terms.clerks), terms.threshold, terms.noise) == (1, 4, 4, 2, 0.0)
        assert {clerk.device for clerk in terms.clerks} == set(FRIENDS)
        qualities[device] = item.self_weight
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    total = sum(qualities.values())
    mean = sum(quality / total * np.array(change_of(device)) for device, quality in qualities.items())
    assert await client.model(ended.model_digests[0]) == pytest.approx(mean, abs=1e-6)
    outcomes = {w.device_id: w.outcome for w in service.fakes.settled[task_id, 1].work}
    assert set(outcomes.values()) == {words.PARTICIPATION_STATE_DELIVERED}
    (cluster,) = [c for c in service.fakes.settled[task_id, 1].payoffs.clusters if len(c.members) > 1]
    assert {member.device_id for member in cluster.members} == set(FRIENDS)


async def test_a_member_hands_nothing_in_as_it_is_and_one_alone_nothing_masked(
    service: ServiceFixture, tmp_path: Path
) -> None:
    client, people, _ = await society(service, tmp_path)
    await people.attend(lambda: people.has_work("dev_a"), seconds=320.0)  # the first plan of a busy machine
    item = await client.get_work("dev_a")
    for form in (words.FORM_MEAN, words.FORM_SUM, words.FORM_REPORT):
        with pytest.raises(CoterieError) as refused:
            await client.deliver(item, "dev_a", change_of("dev_a"), weight=item.self_weight, form=form, metrics={})
        assert refused.value.reason == "bad_masked_update"
    alone = await client.get_work("dev_s")
    terms = Terms.read(item.sum)
    upload, signature = people.masked("dev_s", terms, change_of("dev_s"), 1.0)
    with pytest.raises(CoterieError) as refused:
        await people.send(alone, "dev_s", terms, upload, signature, weight=1.0)
    assert refused.value.reason == "bad_masked_update"


async def decline(client: Client, item: pb.WorkItem, device: str) -> None:
    set_principal(Principal("device", device))
    request = pb.DeclineWorkRequest(task_id=item.task_id, round=1, device_id=device, why="not now")
    await client.work.DeclineWork(request)


async def test_the_members_of_a_sum_that_fails_work_alone_with_all_their_noise(
    service: ServiceFixture, tmp_path: Path
) -> None:
    client, people, task_id = await society(service, tmp_path, quorum=1.0)
    await people.attend(lambda: people.has_work("dev_a"), seconds=320.0)  # the first plan of a busy machine
    item = await client.get_work("dev_a")
    await decline(client, item, "dev_a")

    async def is_alone() -> bool:
        set_principal(Principal("device", "dev_b"))
        reply = await client.work.GetWork(pb.GetWorkRequest(device_id="dev_b"))
        return [result.role for result in reply.items] == [words.ROLE_SOLO]

    await eventually(is_alone, 60.0)
    for device in [*FRIENDS, *LONERS]:
        item = await deliver_alone(client, device)
        assert item.noise_multiplier == pytest.approx(0.6)
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    messages = [e.message for e in await client.events(task_id) if e.kind == words.EVENT_KIND_SUM_FAILED]
    assert len(messages) == 1
    assert "4 devices work alone instead" in messages[0]


async def test_without_noise_a_sum_that_fails_buys_no_raw_updates(service: ServiceFixture, tmp_path: Path) -> None:
    client, people, task_id = await society(service, tmp_path, quorum=1.0, privacy="none")
    await people.attend(lambda: people.has_work("dev_a"), seconds=320.0)  # the first plan of a busy machine
    await decline(client, await client.get_work("dev_a"), "dev_a")
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FAILED
    assert not await people.has_work("dev_b")


def test_noise_by_trust_in_clerks_is_that_of_planner_for_trust_in_head() -> None:
    cases: list[tuple[Calibration, float]] = [("paper", 100.0), ("exact", 100.0), ("exact", 7.0)]
    for calibration, scale in cases:
        noise = {"trust_threshold": 0.7, "noise_max": 0.6, "delta": 1e-6, "calibration": calibration}
        parameters = json.dumps({"privacy": noise, "topology": {} if scale == 100.0 else {"budget_scale": scale}})
        strategy = strategy_for(
            TaskSpecification("t", topology="clusters", privacy="trust", incentive="payoff", parameters_json=parameters)
        )
        model = QualityModel(calibration=calibration, budget_scale=scale)
        trusts = [0.0, 0.05, 0.2, 0.4, 0.69, 0.7, 0.9, 1.0]
        assert [strategy.secure_sums.noise_for_trust(0.0, trust) for trust in trusts] == pytest.approx(
            model.noise(trusts).tolist()
        )


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"parameters": to_struct({"sums": {"mode": "secure", "clerks": 5, "threshold": 3}})}, "leave clerks"),
        ({"rule": "median"}, "leave the rule out"),
        ({"incentive": "stackelberg", "escrow_microcredits": 10}, "choose the incentive payoff"),
    ],
)
async def test_what_clusters_cannot_sum_is_refused_with_what_to_change(
    service: ServiceFixture, changes: dict[str, Any], word: str
) -> None:
    client = await service.start()
    values: dict[str, Any] = {"preset": "clusters", "min_devices": 4, "parameters": to_struct(SECURE)} | changes
    with pytest.raises(CoterieError, match=word):
        await client.create([], **values)
