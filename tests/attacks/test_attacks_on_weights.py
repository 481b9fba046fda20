"""Attacks on weight: a device that claims too many samples, members or too much quality moves the model no further."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.kit.errors import InvalidInput
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.conftest import Client, ServiceFixture, service

__all__ = ["service"]

HONEST = [f"dev_{number}" for number in range(6)]
LIAR = "dev_liar"
SQLITE = pytest.mark.parametrize("settings", ["sqlite"], indirect=True)


def each_its_owner(service: ServiceFixture, devices: list[str]) -> None:
    service.fakes.owners |= {device: f"own_{device}" for device in devices}


async def enrol(client: Client, task_id: str, device: str, samples: int, non_iid: float = 0.0) -> None:
    set_principal(Principal("device", device))
    await client.tasks.Enrol(pb.EnrolRequest(task_id=task_id, device_id=device, samples=samples, non_iid=non_iid))


async def weights(client: Client, task_id: str, number: int = 1) -> dict[str, float]:
    set_principal(Principal("publisher", "pub_1"))
    detail = await client.tasks.GetRound(pb.GetRoundRequest(task_id=task_id, number=number))
    return {p.device_id: p.weight for p in detail.participations}


async def run(client: Client, samples: dict[str, int], values: dict[str, float], **changes: Any) -> pb.Task:
    """A task of one round in which each device delivers its value, with all its samples as weight."""
    task = await client.create([], rounds=1, **changes)
    for device, count in samples.items():
        await enrol(client, task.id, device, count)
    await client.start_task(task.id)
    for device, value in values.items():
        item = await client.get_work(device)
        await client.deliver(item, device, [value] * 3, weight=float(samples[device]))
    return await client.finished(task.id)


@SQLITE
async def test_a_billion_claimed_samples_weigh_no_more_than_a_quarter(service: ServiceFixture) -> None:
    client = await service.start()
    each_its_owner(service, [*HONEST, LIAR])
    samples = dict.fromkeys(HONEST, 100) | {LIAR: 10**9}
    ended = await run(client, samples, dict.fromkeys(HONEST, 1.0) | {LIAR: 5.0})
    assert await weights(client, ended.id) == dict.fromkeys(HONEST, 100.0) | {LIAR: 200.0}
    np.testing.assert_allclose(await client.model(ended.model_digests[0]), [(600 * 1 + 200 * 5) / 800] * 3)


@SQLITE
async def test_owners_devices_claiming_a_billion_samples_weigh_at_most_a_quarter(
    service: ServiceFixture,
) -> None:
    client = await service.start()
    each_its_owner(service, HONEST)
    liars = [f"dev_liar{number}" for number in range(4)]
    service.fakes.owners |= dict.fromkeys(liars, "own_liar")
    samples = dict.fromkeys(HONEST, 100) | dict.fromkeys(liars, 10**9)
    ended = await run(client, samples, dict.fromkeys(HONEST, 1.0) | dict.fromkeys(liars, 5.0))
    result = await weights(client, ended.id)
    assert sum(result[liar] for liar in liars) == pytest.approx(200.0)
    assert {result[device] for device in HONEST} == {100.0}


@SQLITE
async def test_enrolling_a_billion_samples_then_declining_keeps_precision(service: ServiceFixture) -> None:
    """Fixed point leaves room for the heaviest: for a billion samples these small changes would be off by 29 %."""
    client = await service.start()
    each_its_owner(service, [*HONEST, LIAR])
    task = await client.create([], rounds=1, quorum=0.5)
    for device in HONEST:
        await enrol(client, task.id, device, 1)
    await enrol(client, task.id, LIAR, 10**9)
    await client.start_task(task.id)
    set_principal(Principal("device", LIAR))
    await client.get_work(LIAR)
    await client.work.DeclineWork(pb.DeclineWorkRequest(task_id=task.id, round=1, device_id=LIAR, why="busy"))
    values = {device: 1e-3 * (number + 1) for number, device in enumerate(HONEST)}
    for device, value in values.items():
        await client.deliver(await client.get_work(device), device, [value] * 3, weight=1.0)
    ended = await client.finished(task.id)
    mean = np.mean([np.float32(value) for value in values.values()], dtype=np.float64)
    np.testing.assert_allclose(await client.model(ended.model_digests[0]), [mean] * 3, rtol=1e-6)


@SQLITE
async def test_honest_devices_of_unlike_size_weigh_what_they_have(service: ServiceFixture) -> None:
    client = await service.start()
    each_its_owner(service, HONEST)
    samples = {device: 50 * (number + 1) for number, device in enumerate(HONEST)}
    values = {device: float(number) for number, device in enumerate(HONEST)}
    ended = await run(client, samples, values, parameters=to_struct({"bounds": {"largest_share": 0.3}}))
    assert await weights(client, ended.id) == {device: float(count) for device, count in samples.items()}
    mean = np.average(list(values.values()), weights=list(samples.values()))
    np.testing.assert_allclose(await client.model(ended.model_digests[0]), [mean] * 3, rtol=1e-6)


SURVEY = {"survey": {"question": "How warm is it?", "low": 0, "high": 10}}


@SQLITE
async def test_survey_answer_with_weight_beyond_scale_or_no_body_is_refused(
    service: ServiceFixture,
) -> None:
    """Weight 100 once gave an estimate of 170 on a scale to 10, and a report without a body counted as an answer."""
    client = await service.start()
    digest = await client.upload_model(np.zeros(1, np.float32))
    task = await client.create(
        [LIAR, *HONEST],
        samples=1000,
        preset="survey",
        model_digests=[digest],
        rounds=1,
        quorum=0.5,
        parameters=to_struct(SURVEY),
        escrow_microcredits=1_000_000,
    )
    await client.start_task(task.id)
    item = await client.get_work(LIAR)
    with pytest.raises(InvalidInput, match="counts once"):
        await client.deliver(item, LIAR, [1.0], weight=100.0, budget=0.01)
    with pytest.raises(InvalidInput, match="form mean"):
        await client.deliver(item, LIAR, [1.0], form=words.FORM_REPORT, weight=1.0, digest="", size_bytes=0)
    for answer in (-0.7, 1.7):  # 6.5 deviations of 0.1 beyond either end
        with pytest.raises(InvalidInput, match="variance"):
            await client.deliver(item, LIAR, [answer], weight=1.0, budget=0.01)
    for number, device in enumerate(HONEST):
        share = 0.25 + 0.1 * number
        await client.deliver(await client.get_work(device), device, [share], weight=1.0, budget=0.01)
    set_principal(Principal("device", LIAR))
    await client.work.DeclineWork(pb.DeclineWorkRequest(task_id=task.id, round=1, device_id=LIAR))
    await client.finished(task.id)
    set_principal(Principal("publisher", "pub_1"))
    result = (await client.tasks.GetRound(pb.GetRoundRequest(task_id=task.id, number=1))).round.metrics
    assert result["estimate"] == pytest.approx(5.0)  # 10 times the mean of 0.25, 0.35, … 0.75
    assert result["answers"] == len(HONEST)


@SQLITE
async def test_answer_with_huge_claimed_variance_is_reported_and_kept_in_scale(
    service: ServiceFixture,
) -> None:
    """Noise of the largest variance on sale allows an answer of 50 ranges: the mean of seven would be 75 of 10."""
    client = await service.start()
    digest = await client.upload_model(np.zeros(1, np.float32))
    task = await client.create(
        [LIAR, *HONEST],
        preset="survey",
        model_digests=[digest],
        rounds=1,
        quorum=0.5,
        parameters=to_struct(SURVEY),
        escrow_microcredits=1_000_000,
    )
    await client.start_task(task.id)
    await client.deliver(await client.get_work(LIAR), LIAR, [50.0], weight=1.0, budget=100.0)
    for device in HONEST:
        await client.deliver(await client.get_work(device), device, [0.5], weight=1.0, budget=0.01)
    await client.finished(task.id)
    set_principal(Principal("publisher", "pub_1"))
    result = (await client.tasks.GetRound(pb.GetRoundRequest(task_id=task.id, number=1))).round.metrics
    assert result["estimate"] == 10.0
    # The honest path: its reader learns that a survey with such noise in it has found nothing.
    assert result["error_bound"] > 10.0


@SQLITE
async def test_a_rule_without_registered_devices_is_refused_at_creation(service: ServiceFixture) -> None:
    client = await service.start()
    service.fakes.unknown.add("dev_nobody")
    rule: dict[str, Any] = {
        "rule": "trust+mean",
        "parameters": to_struct({"rule": {"known": ["dev_0", "dev_nobody"]}}),
    }
    with pytest.raises(InvalidInput, match=r"known: no device dev_nobody is registered"):
        await client.create([], **rule)
    assert await client.create(["dev_0"], rule="trust+mean", parameters=to_struct({"rule": {"known": ["dev_0"]}}))


@SQLITE
async def test_surveys_that_name_unregistered_people_are_refused(service: ServiceFixture) -> None:
    """A mistyped id would match no adversary and no device, unnoticed."""
    client = await service.start()
    service.fakes.unknown.add("dev_nobody")
    digest = await client.upload_model(np.zeros(1, np.float32))
    values: dict[str, Any] = {"preset": "survey", "rounds": 1, "escrow_microcredits": 10, "model_digests": [digest]}
    for place, values_of in (
        ("known", {"known": ["dev_0", "dev_nobody"], "variance_model": "exact"}),
        ("alike", {"alike": [{"devices": ["dev_nobody", "dev_0"], "correlation": 2.0}]}),
    ):
        with pytest.raises(InvalidInput, match=rf"pricing.{place}: no device dev_nobody is registered"):
            await client.create([], parameters=to_struct(SURVEY | {"pricing": values_of}), **values)


@SQLITE
async def test_a_declared_degree_of_uneven_data_raises_neither_weight_nor_pay(service: ServiceFixture) -> None:
    """A larger γ means a better quality by [SCFL] (13): 10⁶ counts as saying nothing, and only less counts as said."""
    client = await service.start()
    devices = {"dev_0": 0.0, "dev_1": 0.25, LIAR: 1e6}
    each_its_owner(service, list(devices))
    task = await client.create([], preset="clusters", rounds=1, min_devices=3)
    for device, degree in devices.items():
        await enrol(client, task.id, device, 100, degree)
    await client.start_task(task.id)
    values_of = {}
    for number, device in enumerate(devices):
        item = values_of[device] = await client.get_work(device, wait=90.0)
        await client.deliver(item, device, [0.1 * (number + 1), 0.0, 0.1], weight=item.self_weight, metrics={})
    await client.finished(task.id)
    assert values_of[LIAR].self_weight == values_of["dev_0"].self_weight > values_of["dev_1"].self_weight
    assert values_of[LIAR].solo_weight == values_of["dev_0"].solo_weight > values_of["dev_1"].solo_weight
    paid = {
        member.device_id: (member.quality, member.solo_payoff)
        for cluster in service.fakes.settled[task.id, 1].payoffs.clusters
        for member in cluster.members
    }
    assert paid[LIAR] == paid["dev_0"] > paid["dev_1"]
