"""Attacks on contributions: an evaluator that lies about numbers, rounds or tasks sets no worth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.kit.errors import Conflict, InvalidInput, NotFound, PermissionDenied
from services.kit.rpc.principal import Principal, set_principal
from tests.attacks.test_attacks_on_weights import SQLITE
from tests.contract.aggregation.conftest import Client, ServiceFixture, service
from tests.contract.aggregation.test_aggregation_contributions import (
    GIVEN,
    answer,
    ask,
    contributions,
    models_of,
    paid,
    worth,
)

__all__ = ["service"]


async def begun(client: Client, name: str) -> pb.Evaluation:
    """A task whose first round waits to be valued, and what is asked about it."""
    task = await client.create(list(GIVEN), samples=20, rounds=1, name=name, **paid())
    await client.start_task(task.id)
    for device, values in GIVEN.items():
        set_principal(Principal("device", device))
        reply = await client.work.GetWork(pb.GetWorkRequest(device_id=device, wait_seconds=10.0, task_ids=[task.id]))
        await client.deliver(reply.items[0], device, values)
    return await ask(client, task.id)


@SQLITE
async def test_only_the_tasks_own_publisher_sets_worths(service: ServiceFixture) -> None:
    client = await service.start()
    asked = await begun(client, "valued")
    answer = pb.AnswerEvaluationRequest(
        task_id=asked.task_id, round=1, model_digest=asked.model_digest, worths=[1.0] * asked.models
    )
    for liar in (Principal("publisher", "pub_2"), Principal("device", "dev_a"), Principal("device", "dev_b")):
        set_principal(liar)
        with pytest.raises(PermissionDenied):
            await client.tasks.AnswerEvaluation(answer)
        with pytest.raises(PermissionDenied):
            await client.tasks.GetEvaluation(pb.GetEvaluationRequest(task_id=asked.task_id))
    assert await contributions(client, asked.task_id, Principal("publisher", "pub_1")) == {}


@SQLITE
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e308, -1e13])
async def test_non_finite_or_absurd_worths_are_refused_and_change_nothing(service: ServiceFixture, bad: float) -> None:
    """Differences of 10^308 and its negative are infinite, and infinities cannot share a pot."""
    client = await service.start()
    asked = await begun(client, "valued")
    for worths in ([bad] * asked.models, [0.0] * (asked.models - 1) + [bad]):
        with pytest.raises(InvalidInput, match=r"8 finite numbers were asked for.*to 1e\+12"):
            await answer(client, asked, worths)
    assert (await ask(client, asked.task_id)).model_digest == asked.model_digest


@SQLITE
async def test_missing_coalitions_and_foreign_worths_are_refused(service: ServiceFixture) -> None:
    client = await service.start()
    one, two = await begun(client, "one"), await begun(client, "two")
    assert one.task_id != two.task_id
    for worths in ([], [1.0] * (one.models - 1), [1.0] * (one.models + 1)):
        with pytest.raises(InvalidInput, match="8 finite numbers were asked for"):
            await answer(client, one, worths)
    elsewhere = pb.Evaluation(task_id=one.task_id, round=1, model_digest="ab" * 32, models=8)
    with pytest.raises(Conflict, match="were not asked about"):
        await answer(client, elsewhere, [1.0] * 8)
    for number in (0, 2, 10**6):
        with pytest.raises((Conflict, NotFound, InvalidInput)):
            await answer(client, pb.Evaluation(task_id=one.task_id, round=number, model_digest=one.model_digest), [1.0])
    stacked = await models_of(client, one)
    assert (await answer(client, one, [worth(model) for model in stacked])).is_valued
    assert set(await contributions(client, one.task_id, Principal("publisher", "pub_1"))) == set(GIVEN)
    assert await contributions(client, two.task_id, Principal("publisher", "pub_1")) == {}


@SQLITE
async def test_negative_worths_pay_no_device_more_than_the_pot(service: ServiceFixture) -> None:
    """All worths negative, the whole worth less than its parts: shares are at least 0, and finite."""
    client = await service.start()
    asked = await begun(client, "valued")
    worths = (-9e11 + np.random.default_rng(0).normal(size=asked.models)).tolist()
    assert (await answer(client, asked, worths)).is_valued
    assert (await client.finished(asked.task_id)).state == words.TASK_STATE_FINISHED
    shares = [work.quality for work in service.fakes.settled[asked.task_id, 1].work]
    assert all(math.isfinite(share) and share >= 0.0 for share in shares)
    # Told once, it stands: later lies change nothing.
    before = await contributions(client, asked.task_id, Principal("publisher", "pub_1"))
    assert (await answer(client, asked, [1.0] * asked.models)).is_valued
    assert await contributions(client, asked.task_id, Principal("publisher", "pub_1")) == before
