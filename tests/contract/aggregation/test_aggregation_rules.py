"""Rules over the wire: what-if answers, and rounds that close by a task's rule."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.aggregation import tables
from services.aggregation.whatif import SOLVERS
from services.kit.errors import InvalidInput, NotFound, PermissionDenied
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import Principal, set_principal
from services.kit.runtime import whatif
from tests.contract.aggregation.conftest import Client, ServiceFixture


async def test_what_if_answers_publishers_by_the_solvers_name(service: ServiceFixture) -> None:
    client = await service.start()
    set_principal(Principal("publisher", "pub_1"))
    question = pb.WhatIfRequest(solver="combine", input_json='{"rule": "median", "updates": [[1], [5], [2]]}')
    assert json.loads((await client.tasks.WhatIf(question)).output_json)["result"] == [2.0]
    with pytest.raises(InvalidInput, match="did you mean 'median'"):
        await client.tasks.WhatIf(pb.WhatIfRequest(solver="combine", input_json='{"rule": "medan", "updates": [[1]]}'))
    with pytest.raises(NotFound, match="choose one of: combine"):
        await client.tasks.WhatIf(pb.WhatIfRequest(solver="oracle", input_json="{}"))
    set_principal(Principal("device", "dev_a"))
    with pytest.raises(PermissionDenied):
        await client.tasks.WhatIf(question)


FIVE = [f"dev_{letter}" for letter in "abcde"]
GIVEN = {
    "dev_a": [1.0, 10.0, 0.0],
    "dev_b": [2.0, 20.0, 0.0],
    "dev_c": [3.0, 30.0, 0.0],
    "dev_d": [4.0, 40.0, 0.0],
    "dev_e": [1000.0, -1000.0, 9.0],
}


async def play(client: Client, task_id: str, rounds: int = 1) -> None:
    for _ in range(rounds):
        for device in FIVE:
            item = await client.get_work(device)
            await client.deliver(item, device, GIVEN[device])


def with_rule(rule: str, **parameters: object) -> dict[str, Any]:
    # A bound so wide that the rule alone decides about dev_e, whose update is a thousand times longer than the others'.
    document = {"rule": parameters, "bounds": {"norm_times": 1e6}}
    return {"rule": rule, "parameters": to_struct(document), "min_devices": 5}


@pytest.mark.parametrize(
    ("rule", "parameters", "expected", "aside"),
    [
        ("median", {}, [3.0, 20.0, 0.0], {"dev_e"}),
        ("trimmed-mean", {"f": 1}, [3.0, 20.0, 0.0], set()),
        ("multi-krum", {"f": 1}, [2.5, 25.0, 0.0], {"dev_e"}),
        ("nnm+krum", {"f": 1}, [2.5, 25.0, 0.0], {"dev_e"}),
        ("centred-clipping", {"radius": 0.5}, None, set()),
        ("mean-around-median", {"f": 1}, None, set()),
        ("geometric-median", {}, None, set()),
    ],
)
async def test_a_round_closes_by_its_tasks_rule(
    service: ServiceFixture, rule: str, parameters: dict[str, Any], expected: list[float] | None, aside: set[str]
) -> None:
    client = await service.start()
    task = await client.create(FIVE, rounds=1, **with_rule(rule, **parameters))
    assert task.specification.rule == rule
    await client.start_task(task.id)
    await play(client, task.id)
    ended = await client.finished(task.id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    result = (await client.model(ended.model_digests[0])).tolist()
    if expected is not None:
        assert result == pytest.approx(expected)
    question = {"rule": rule.rpartition("+")[2], "updates": list(GIVEN.values()), "parameters": parameters}
    if "+" in rule:
        question["pre"] = rule.partition("+")[0]
    answer = json.loads(whatif.answer(SOLVERS, "combine", json.dumps(question)))
    assert result == np.float32(answer["result"]).tolist()
    detail = await client.tasks.GetRound(pb.GetRoundRequest(task_id=task.id, number=1))
    notes = {p.device_id: p.excluded_because for p in detail.participations if p.excluded_because}
    assert set(notes) == {FIVE[item["device"]] for item in answer["set_aside"]} >= aside
    assert notes == {FIVE[item["device"]]: item["why"] for item in answer["set_aside"]}
    assert [p.state for p in detail.participations] == [words.PARTICIPATION_STATE_DELIVERED] * 5
    (combined,) = [e.message for e in await client.events(task.id) if e.kind == words.EVENT_KIND_ROUND_COMBINED]
    named = ", ".join(f"{device} ({notes[device]})" for device in sorted(notes)[:3])
    more = f" and {len(notes) - 3} more" if len(notes) > 3 else ""
    assert combined == f"{rule} used {5 - len(notes)} of 5 updates" + (f"; set aside: {named}{more}" if notes else "")


@pytest.mark.parametrize("rule", ["fedavgm", "fedadam", "fedadagrad", "trimmed-mean+fedyogi"])
async def test_an_optimiser_remembers_across_rounds_and_restarts(service: ServiceFixture, rule: str) -> None:
    """The same task twice, once stopped dead between and in rounds: the same bytes, and what the formulas say."""
    parameters = {"learning_rate": 0.5} | ({"f": 1} if "trimmed" in rule else {})
    client = await service.start()
    digests = []
    for name in ("whole", "torn"):
        task = await client.create(FIVE, rounds=3, name=name, **with_rule(rule, **parameters))
        await client.start_task(task.id)
        if name == "whole":
            await play(client, task.id, 3)
        else:
            for number in (1, 2, 3):
                for place, device in enumerate(FIVE):
                    await client.deliver(await client.get_work(device), device, GIVEN[device])
                    if place == number:
                        client.app.open_rounds.by_task.clear()
                        await client.app.conductor.stop()
                        client = await service.start()
        ended = await client.finished(task.id)
        assert ended.state == words.TASK_STATE_FINISHED, ended.reason
        digests.append(ended.model_digests[0])
    assert digests[0] == digests[1]
    change = [202.0, -180.0, 1.8] if rule != "trimmed-mean+fedyogi" else [3.0, 20.0, 0.0]
    model, state = [0.0] * 3, None
    for _ in range(3):
        question: dict[str, Any] = {"rule": rule.rpartition("+")[2], "parameters": {"learning_rate": 0.5}}
        question |= {"state": state, "model": model, "mean_change": change}
        answer = json.loads(whatif.answer(SOLVERS, "step", json.dumps(question)))
        model, state = [float(np.float32(x)) for x in answer["model"]], answer["state"]
    np.testing.assert_allclose(await client.model(digests[0]), model, rtol=1e-6)


async def test_a_state_is_nobodys_to_list_or_download_and_old_ones_are_forgotten(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(FIVE, rounds=3, **with_rule("fedadam"))
    await client.start_task(task.id)
    await play(client, task.id, 3)
    ended = await client.finished(task.id)
    assert len(ended.model_digests) == 1
    listed = await client.tasks.ListModels(pb.ListModelsRequest(task_id=task.id))
    assert [(m.line, m.version) for m in listed.models] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    async with client.app.database.reading() as tx:
        rows = (await tx.execute(sa.select(tables.models).where(tables.models.c.line < 0))).mappings().all()
    assert [(row["line"], row["version"]) for row in rows] == [(-1, 3)]
    set_principal(Principal("device", "dev_a"))
    with pytest.raises(NotFound):
        await client.tasks.AuthoriseDownload(pb.AuthoriseDownloadRequest(digest=rows[0]["digest"]))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (with_rule("medan"), "did you mean 'median'"),
        (with_rule("krum"), r"parameters\.rule\.f: is missing"),
        (
            with_rule("krum", f=2) | {"min_devices": 4},
            r"parameters\.rule\.f: f = 2 needs more than 4 .*not 4 devices",
        ),
        (with_rule("bucketing+krum", f=1, size=3), "not 2 buckets of 5 devices"),
        (with_rule("krum", f=1, tau=1), r"parameters\.rule\.tau: no such parameter; krum takes: f"),
        (with_rule("median") | {"preset": "mesh"}, "in a mesh devices mix among themselves"),
        (with_rule("fedadam") | {"preset": "mesh"}, "in a mesh devices mix among themselves"),
        ({"preset": "mesh", "training_json": '{"proximal": 0.1}'}, "a mesh has none of"),
    ],
)
async def test_a_rule_that_cannot_work_is_refused_when_the_task_is_made(
    service: ServiceFixture, changes: dict[str, Any], words: str
) -> None:
    client = await service.start()
    with pytest.raises(InvalidInput, match=words):
        await client.create([], **changes)


async def test_too_few_updates_for_a_rule_are_tried_again_and_never_averaged(service: ServiceFixture) -> None:
    """Two of three came, which meets the quorum but cannot bear one liar: the round opens again, then fails."""
    client = await service.start()
    task = await client.create(
        FIVE[:3], rounds=1, quorum=0.5, round_seconds=0.6, max_attempts=2, **with_rule("krum", f=1) | {"min_devices": 3}
    )
    await client.start_task(task.id)
    for device in FIVE[:2]:
        await client.deliver(await client.get_work(device), device, GIVEN[device])
    ended = await client.finished(task.id)
    assert ended.state == words.TASK_STATE_FAILED
    assert ended.reason.startswith("round 1 missed its quorum in 2 attempts")
    assert "f = 1 needs more than 2 updates" in ended.reason
    assert (await client.model(ended.model_digests[0])).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("rule", ["krum", "trust+krum"])
async def test_copies_that_leave_too_few_for_a_rule_open_the_round_again(service: ServiceFixture, rule: str) -> None:
    """Two of three send the same bytes: one is left, which cannot bear a liar. Asked again, they train themselves."""
    service.fakes.trust = dict.fromkeys(itertools.combinations(FIVE[:3], 2), 0.5)
    client = await service.start()
    sold = {"preset": "market", "escrow_microcredits": 10, "min_devices": 3, "max_attempts": 2}
    task = await client.create(FIVE[:3], rounds=1, **with_rule(rule, f=1) | sold)
    await client.start_task(task.id)
    await client.deliver(await client.get_work("dev_a"), "dev_a", [0.1, 0.0, 0.0], budget=0.5)
    for device in ("dev_b", "dev_c"):
        await client.deliver(await client.get_work(device), device, [0.3, 0.3, 0.3], budget=0.5)
    for device, value in (("dev_b", 0.2), ("dev_c", 0.35)):
        item = await client.get_work(device)
        assert (item.round, item.attempt) == (1, 2)
        await client.deliver(item, device, [value, 0.0, 0.0], budget=0.5)
    ended = await client.finished(task.id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    np.testing.assert_allclose(await client.model(ended.model_digests[0]), [0.1, 0.0, 0.0])
    asides = {work.device_id: work.excluded_because for work in service.fakes.settled[task.id, 1].work}
    assert asides["dev_a"] == ""
    assert "mean squared distance" in asides["dev_b"], "the payer can say so"
    happened = await client.events(task.id)
    rejected = [e for e in happened if e.kind == words.EVENT_KIND_DEVICE_REJECTED]
    assert {e.device_id for e in rejected} == {"dev_b", "dev_c"}
    assert all("that of another device" in e.message for e in rejected)


async def test_a_step_beyond_all_numbers_ends_the_task_with_the_reason(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(FIVE, rounds=1, **with_rule("fedavgm", learning_rate=1e38))
    await client.start_task(task.id)
    await play(client, task.id)
    ended = await client.finished(task.id)
    assert ended.state == words.TASK_STATE_FAILED
    assert "the step leaves the range of F32 in tensor 'w'; lower the rule's learning rate" in ended.reason


async def test_excluded_update_is_neutral_and_three_outlying_rounds_are_not(service: ServiceFixture) -> None:
    """dev_e lies a thousand away in every round. Rounds 1 and 2 say nothing of it; round 3 does."""
    client = await service.start()
    task = await client.create(FIVE, rounds=3, **with_rule("multi-krum", f=1))
    await client.start_task(task.id)
    await play(client, task.id, 3)
    assert (await client.finished(task.id)).state == words.TASK_STATE_FINISHED
    about = [i for i in service.fakes.interactions.values() if "dev_e" in (i.device_a, i.device_b)]
    assert {i.note for i in about} == {f"round 3 of {task.id}"}
    assert not any(i.positive for i in about)
    others = [i for i in service.fakes.interactions.values() if i not in about]
    assert len(others) == 3 * 6
    assert all(i.positive for i in others)
    detail = await client.tasks.GetRound(pb.GetRoundRequest(task_id=task.id, number=1))
    distances = {p.device_id: p.metrics["update_distance"] for p in detail.participations}
    assert distances["dev_e"] > 5 > max(distances[device] for device in FIVE[:4])


async def test_a_round_by_trust_goes_by_what_the_registry_says_when_it_opens(service: ServiceFixture) -> None:
    """No device trusts dev_d and dev_e; that the registry forgets everything during the round changes nothing."""
    service.fakes.trust = {("dev_a", "dev_b"): 0.9, ("dev_a", "dev_c"): 0.3, ("dev_b", "dev_c"): 0.3}
    client = await service.start()
    task = await client.create(FIVE, rounds=1, **with_rule("trust+mean"))
    await client.start_task(task.id)
    item = await client.get_work("dev_a")
    assert item.trust_weight == pytest.approx(1.2 / 4)
    service.fakes.trust = {}
    await play(client, task.id)
    ended = await client.finished(task.id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    says = np.array([1.2, 1.2, 0.6]) / 4
    expected = says @ np.array([GIVEN[device] for device in FIVE[:3]]) / says.sum()
    np.testing.assert_allclose(await client.model(ended.model_digests[0]), expected, rtol=1e-6)
    detail = await client.tasks.GetRound(pb.GetRoundRequest(task_id=task.id, number=1))
    assert {p.device_id: p.excluded_because for p in detail.participations if p.excluded_because} == {
        "dev_d": "the others give it no trust",
        "dev_e": "the others give it no trust",
    }


async def test_a_round_without_a_trusted_device_does_not_close(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(FIVE, rounds=1, max_attempts=1, **with_rule("trust+centred-clipping", radius=1.0))
    await client.start_task(task.id)
    await play(client, task.id)
    ended = await client.finished(task.id)
    assert ended.state == words.TASK_STATE_FAILED
    assert "no device that delivered is trusted" in ended.reason
