"""Contributions over the wire: a publisher's evaluator is asked, values follow, and pots are shared by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from coterie.secure_sums.terms import Terms
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.aggregation.domain.contribution import exact
from services.kit.errors import Conflict, InvalidInput, PermissionDenied
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.committee import Committee
from tests.contract.aggregation.conftest import Client, ServiceFixture, eventually

GIVEN = {"dev_a": [1.0, 0.0, 0.0], "dev_b": [3.0, 1.0, 0.0], "dev_c": [-9.0, 0.0, 2.0]}
WEIGHTS = {"dev_a": 10.0, "dev_b": 20.0, "dev_c": 10.0}
BOUNDS = {"bounds": {"largest_share": 1.0, "norm_times": 1e6}}


def worth(model: npt.NDArray[Any]) -> float:
    """Best at (2, 1, 0)."""
    return -float(((model - [2.0, 1.0, 0.0]) ** 2).sum())


def by_hand() -> npt.NDArray[np.float64]:
    """Exact Shapley values of the same game, by means of the updates themselves."""
    names = sorted(GIVEN)

    def of(coalition: frozenset[int]) -> float:
        chosen = [names[i] for i in coalition]
        if not chosen:
            return worth(np.zeros(3))
        total = sum(WEIGHTS[name] * np.array(GIVEN[name]) for name in chosen)
        return worth(np.asarray(total / sum(WEIGHTS[name] for name in chosen), np.float32))

    return exact(3, of)


async def ask(client: Client, task_id: str, wait: float = 10.0) -> pb.Evaluation:
    set_principal(Principal("publisher", "pub_1"))
    return await client.tasks.GetEvaluation(pb.GetEvaluationRequest(task_id=task_id, wait_seconds=wait))


async def models_of(client: Client, asked: pb.Evaluation) -> npt.NDArray[np.float32]:
    result: npt.NDArray[np.float32] = await client.model(asked.model_digest)
    assert result.shape == (asked.models, 3)
    return result


async def answer(client: Client, asked: pb.Evaluation, worths: list[float]) -> pb.AnswerEvaluationReply:
    set_principal(Principal("publisher", "pub_1"))
    return await client.tasks.AnswerEvaluation(
        pb.AnswerEvaluationRequest(
            task_id=asked.task_id, round=asked.round, model_digest=asked.model_digest, worths=worths
        )
    )


async def evaluate(client: Client, task_id: str) -> int:
    """Answers until a round is valued; how many models were asked about."""
    models = 0
    while True:
        asked = await ask(client, task_id)
        assert asked.model_digest, asked
        stacked = await models_of(client, asked)
        models += asked.models
        if (await answer(client, asked, [worth(model) for model in stacked])).is_valued:
            return models


async def contributions(client: Client, task_id: str, caller: Principal, number: int = 0) -> dict[str, pb.Contribution]:
    set_principal(caller)
    reply = await client.tasks.ListContributions(pb.ListContributionsRequest(task_id=task_id, round=number))
    return {contribution.device_id: contribution for contribution in reply.contributions}


def paid(**changes: Any) -> dict[str, Any]:
    return {
        "incentive": "contribution",
        "escrow_microcredits": 1000,
        "min_devices": 3,
        "parameters": to_struct(BOUNDS | changes.pop("parameters", {})),
    } | changes


async def play(client: Client, task_id: str) -> None:
    for device, values in GIVEN.items():
        await client.deliver(await client.get_work(device), device, values, weight=WEIGHTS[device])


async def test_a_round_is_valued_exactly_and_settled_by_it(service: ServiceFixture) -> None:
    """All eight coalitions are asked about, the model of all has the round's own bits, harm is paid nothing."""
    client = await service.start()
    task = await client.create(list(GIVEN), samples=20, rounds=2, **paid())
    await client.start_task(task.id)
    await play(client, task.id)
    asked = await ask(client, task.id)
    assert (asked.round, asked.models, asked.players) == (1, 8, 3)
    stacked = await models_of(client, asked)
    set_principal(Principal("publisher", "pub_1"))
    detail = await client.tasks.GetRound(pb.GetRoundRequest(task_id=task.id, number=1))
    assert detail.round.state == words.ROUND_STATE_SETTLING
    assert stacked[7].tobytes() == (await client.model(detail.round.model_digests[0])).tobytes()
    assert stacked[0].tolist() == [0.0, 0.0, 0.0]
    for bad in ([1.0], [float("nan")] * 8):
        with pytest.raises(InvalidInput, match="8 finite numbers were asked for"):
            await answer(client, asked, bad)
    # A server that dies in between asks the same again.
    client.app.open_rounds.by_task.clear()
    await client.app.conductor.stop()
    client = await service.start()
    again = await ask(client, task.id)
    assert again.model_digest == asked.model_digest
    assert (await answer(client, again, [worth(model) for model in stacked])).is_valued
    assert (await answer(client, again, [0.0] * 8)).is_valued
    result = await contributions(client, task.id, Principal("publisher", "pub_1"), 1)
    assert [result[name].value for name in sorted(GIVEN)] == pytest.approx(by_hand(), rel=1e-5)
    assert result["dev_c"].value < 0 < result["dev_b"].value
    await eventually(lambda: _settled(service, task.id))
    shares = {work.device_id: work.quality for work in service.fakes.settled[task.id, 1].work}
    assert shares == {name: max(result[name].value, 0.0) for name in GIVEN}
    (message,) = [e.message for e in await client.events(task.id) if e.kind == words.EVENT_KIND_ROUND_VALUED]
    assert message.startswith("3 updates, as the server sees them, valued by 8 models")
    assert (await contributions(client, task.id, Principal("device", "dev_a"))).keys() == {"dev_a"}
    await play(client, task.id)
    await evaluate(client, task.id)
    assert (await client.finished(task.id)).state == words.TASK_STATE_FINISHED
    assert (await ask(client, task.id)).ended
    total = await contributions(client, task.id, Principal("publisher", "pub_1"))
    assert {item.rounds for item in total.values()} == {2}


async def _settled_rounds(service: ServiceFixture, task_id: str, number: int) -> bool:
    return (task_id, number) in service.fakes.settled


async def _settled(service: ServiceFixture, task_id: str) -> bool:
    return await _settled_rounds(service, task_id, 1)


async def test_a_round_without_valuation_is_settled_for_nothing_and_says_so(service: ServiceFixture) -> None:
    client = await service.start()
    options = paid(parameters={"pricing": {"evaluation_seconds": 0.2}})
    task = await client.create(list(GIVEN), samples=20, rounds=1, **options)
    await client.start_task(task.id)
    await play(client, task.id)
    assert (await client.finished(task.id)).state == words.TASK_STATE_FINISHED
    assert {work.quality for work in service.fakes.settled[task.id, 1].work} == {0.0}
    (event,) = [e.message for e in await client.events(task.id) if e.kind == words.EVENT_KIND_ROUND_VALUED]
    assert "no device is paid" in event
    assert (await ask(client, task.id, 0.0)).ended


async def test_an_asynchronous_task_is_valued_by_its_discounted_updates(service: ServiceFixture) -> None:
    """Without the incentive: any task that keeps its updates can be evaluated, also when it is over."""
    client = await service.start()
    parameters = to_struct({"asynchronous": {"buffer": 2}} | BOUNDS)
    task = await client.create(
        list(GIVEN), samples=20, rounds=2, mode="asynchronous", parameters=parameters, min_devices=2
    )
    await client.start_task(task.id)
    slow = await client.get_work("dev_c")
    for device in ("dev_a", "dev_b"):
        await client.deliver(await client.get_work(device), device, GIVEN[device], weight=10.0)
    await client.deliver(await client.get_work("dev_a"), "dev_a", GIVEN["dev_a"], weight=10.0)
    await client.deliver(slow, "dev_c", GIVEN["dev_c"], weight=10.0)
    ended = await client.finished(task.id)
    await evaluate(client, task.id)
    asked = await ask(client, task.id)
    assert (asked.round, asked.models) == (2, 4)
    stacked = await models_of(client, asked)
    assert stacked[3].tobytes() == (await client.model(ended.model_digests[0])).tobytes()
    one = np.array([2.0, 0.5, 0.0])
    np.testing.assert_allclose(stacked[2], one + 2**-0.5 * np.array(GIVEN["dev_c"]), rtol=1e-6)


async def test_what_cannot_be_valued_says_why(service: ServiceFixture) -> None:
    client = await service.start()
    plain = await client.create(list(GIVEN), name="plain")
    with pytest.raises(Conflict, match="create it with keep_rounds"):
        await ask(client, plain.id)
    mesh = await client.create([], name="mesh", preset="mesh", keep_rounds=5)
    with pytest.raises(Conflict, match="in a mesh the server sees no update"):
        await ask(client, mesh.id)
    with pytest.raises(InvalidInput, match="a subtraction from a mean"):
        await client.create([], name="r", **paid(rule="median"))
    one_sum = paid(parameters={"sums": {"mode": "secure", "clerks": 3}})
    with pytest.raises(InvalidInput, match=r"raise min_devices to 10 and give sums\.cohort_devices 5"):
        await client.create([], name="s", **one_sum)
    with pytest.raises(InvalidInput, match=r"give sums\.cohort_devices from 5 to 6"):
        await client.create([], name="s", **one_sum | {"min_devices": 12})
    secure = to_struct({"sums": {"mode": "secure"}})
    hidden = await client.create([], name="hidden", parameters=secure, min_devices=12, keep_rounds=5)
    with pytest.raises(Conflict, match="under secure sums the server sees no update and keeps no sum"):
        await ask(client, hidden.id)
    with pytest.raises(InvalidInput, match="each update must be seen on its own"):
        await client.create([], name="c", preset="clusters", incentive="contribution")
    set_principal(Principal("publisher", "pub_2"))
    with pytest.raises(PermissionDenied):
        await client.tasks.GetEvaluation(pb.GetEvaluationRequest(task_id=plain.id))


MANY = [f"dev_{letter}" for letter in "abcdefghij"]


async def test_secure_cohorts_are_valued_and_devices_share_by_weight(service: ServiceFixture, tmp_path: Path) -> None:
    """Two sums of five devices, a few of which weigh more: four models are asked about, the one of all has the
    round's own bits, and values, shares and the sum of all are as reckoned by hand from the two means."""
    client = await service.start()
    people = Committee.of(service, client, tmp_path, MANY)
    rules = {"sums": {"mode": "secure", "cohort_devices": 5, "offer_seconds": 60, "clerk_seconds": 60}}
    options = paid(parameters=rules, min_devices=10, rounds=1, quorum=1.0)
    task = await client.create(MANY, samples=20, **options)
    await client.start_task(task.id)
    weights = {device: 20.0 if device in "dev_a dev_b dev_c" else 10.0 for device in MANY}
    cohorts: dict[int, list[str]] = {}
    for device in MANY:
        await people.until_work(device)
        cohorts.setdefault(Terms.read((await client.get_work(device)).sum).cohort, []).append(device)
    given = {
        device: [1.0 - cohort, 1.0, place / 10] for cohort, some in cohorts.items() for place, device in enumerate(some)
    }
    for device in MANY:
        await people.deliver(device, given[device], weight=weights[device])
    await people.attend(lambda: _asked(client, task.id))
    asked = await ask(client, task.id)
    assert (asked.models, asked.players) == (4, 2)
    stacked = await models_of(client, asked)
    set_principal(Principal("publisher", "pub_1"))
    detail = await client.tasks.GetRound(pb.GetRoundRequest(task_id=task.id, number=1))
    assert stacked[3].tobytes() == (await client.model(detail.round.model_digests[0])).tobytes()

    def mean(some: list[str]) -> npt.NDArray[np.float64]:
        together = sum(weights[device] for device in some)
        total = np.sum([np.multiply(given[device], weights[device]) for device in some], axis=0)
        return np.asarray(total / together)

    for model, some in zip(stacked[1:], (cohorts[0], cohorts[1], MANY), strict=True):
        np.testing.assert_allclose(model, mean(some), atol=1e-6)
    w = [worth(np.zeros(3)), worth(mean(cohorts[0])), worth(mean(cohorts[1])), worth(mean(MANY))]
    by_sum = {0: (w[1] - w[0] + w[3] - w[2]) / 2, 1: (w[2] - w[0] + w[3] - w[1]) / 2}
    assert (await answer(client, asked, [worth(model) for model in stacked])).is_valued
    valued = await contributions(client, task.id, Principal("publisher", "pub_1"), 1)
    for cohort, some in cohorts.items():
        together = sum(weights[device] for device in some)
        for device in some:
            assert valued[device].value == pytest.approx(by_sum[cohort] * weights[device] / together, abs=1e-5)
    assert sum(item.value for item in valued.values()) == pytest.approx(w[3] - w[0], abs=1e-5)
    assert (await people.finish(task.id)).state == words.TASK_STATE_FINISHED
    shares = {work.device_id: work.quality for work in service.fakes.settled[task.id, 1].work}
    assert shares == {device: max(valued[device].value, 0.0) for device in MANY}
    (message,) = [e.message for e in await client.events(task.id) if e.kind == words.EVENT_KIND_ROUND_VALUED]
    assert message.startswith(
        "2 sums of 10 devices, which is what the server sees (each device has its part of its sum's"
    )


async def _asked(client: Client, task_id: str) -> bool:
    return bool((await ask(client, task_id, wait=0.0)).model_digest)
