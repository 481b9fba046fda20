"""Secure sums on the server: the model is that of the clear star to the bit, whichever devices drop out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.records.enums import DutyKind
from coterie.secure_sums.terms import Terms
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.kit.errors import Conflict
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.committee import SECURE, Committee
from tests.contract.aggregation.conftest import Client, ServiceFixture

DEVICES = [f"dev_{letter}" for letter in "abcdef"]


def change_of(device: str, number: int = 1) -> list[float]:
    rng = np.random.default_rng([ord(device[-1]), number])
    return [float(value) for value in rng.normal(0, 0.3, 3).astype(np.float32)]


async def secure_task(client: Client, devices: list[str] = DEVICES, **changes: Any) -> str:
    values: dict[str, Any] = {
        "min_devices": 4,
        "quorum": 0.65,
        "rounds": 1,
        "parameters": to_struct(SECURE),
    } | changes
    task = await client.create(devices, **values)
    await client.start_task(task.id)
    return task.id


async def clear_model(client: Client, devices: list[str], rounds: int = 1, **changes: Any) -> bytes:
    """The model of a clear star with the same devices, of which only `devices` are in the sums."""
    values: dict[str, Any] = {"name": "clear", "min_devices": 1, "quorum": 0.1, "rounds": rounds} | changes
    task = await client.create(DEVICES, **values)
    await client.start_task(task.id)
    for number in range(1, rounds + 1):
        for device in DEVICES:
            item = await client.get_work(device)
            if device in devices:
                await client.deliver(item, device, change_of(device, number), weight=weight_of(device))
            else:
                set_principal(Principal("device", device))
                await client.work.DeclineWork(
                    pb.DeclineWorkRequest(task_id=task.id, round=number, device_id=device, why="no")
                )
    ended = await client.finished(task.id)
    return (await client.model(ended.model_digests[0])).tobytes()


def weight_of(device: str) -> float:
    return float(1 + ord(device[-1]) % 7)


async def test_the_secure_star_makes_the_model_of_the_clear_star_to_the_bit(
    service: ServiceFixture, tmp_path: Path
) -> None:
    client = await service.start()
    people = Committee.of(service, client, tmp_path, DEVICES)
    task_id = await secure_task(client, rounds=2)
    for number in (1, 2):
        await people.round({device: change_of(device, number) for device in DEVICES}, weight_of)
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    model = (await client.model(ended.model_digests[0])).tobytes()
    assert model == await clear_model(client, DEVICES, rounds=2)
    kinds = [event.kind for event in await client.events(task_id)]
    assert words.EVENT_KIND_SUM_UNMASKED in kinds
    assert words.EVENT_KIND_SUM_UNCHECKED not in kinds
    assert [kind for _, kind in people.done].count(DutyKind.FORGET) == 8, "four clerks in two rounds"
    assert {w.outcome for w in service.fakes.settled[task_id, 1].work} == {words.PARTICIPATION_STATE_DELIVERED}


async def events_of(client: Client, task_id: str, *kinds: words.EventKind.ValueType) -> list[str]:
    return [event.message for event in await client.events(task_id) if event.kind in kinds]


QUICK = {"sums": {"mode": "secure", "offer_seconds": 20, "clerk_seconds": 16}}


async def test_third_of_devices_and_one_clerk_are_lost_and_sum_is_that_of_rest(
    service: ServiceFixture, tmp_path: Path
) -> None:
    client = await service.start()
    people = Committee.of(service, client, tmp_path, DEVICES)
    task_id = await secure_task(client, parameters=to_struct(QUICK), quorum=0.6, round_seconds=3.0)
    there = DEVICES[:4]
    await people.until_work("dev_a")
    people.silent |= {"dev_d", *DEVICES[4:]}  # dev_d delivers and then does no duty as a clerk; the others do nothing
    for device in there:
        await people.deliver(device, change_of(device), weight=weight_of(device))
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    assert (await client.model(ended.model_digests[0])).tobytes() == await clear_model(client, there)
    assert await events_of(client, task_id, words.EVENT_KIND_CLERK_SILENT)
    outcomes = {w.device_id: w.outcome for w in service.fakes.settled[task_id, 1].work}
    assert [outcomes[device] for device in DEVICES] == [words.PARTICIPATION_STATE_DELIVERED] * 4 + [
        words.PARTICIPATION_STATE_DROPPED
    ] * 2
    silent = [i for i in service.fakes.interactions.values() if "clerk" in i.note]
    assert {(i.device_a, i.device_b) for i in silent} == {("dev_a", "dev_d"), ("dev_b", "dev_d"), ("dev_c", "dev_d")}
    assert not any(i.positive for i in silent)


async def test_a_silent_clerk_is_replaced_before_any_device_has_seen_terms(
    service: ServiceFixture, tmp_path: Path
) -> None:
    client = await service.start()
    people = Committee.of(service, client, tmp_path, DEVICES)
    people.silent.add("dev_b")
    rules = {"sums": {"mode": "secure", "offer_seconds": 8}}
    task_id = await secure_task(client, parameters=to_struct(rules))
    await people.round({device: change_of(device) for device in DEVICES}, weight_of)
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    called = await events_of(client, task_id, words.EVENT_KIND_SUM_COMMITTEE_SELECTED)
    assert ["dev_b" in message for message in called] == [True, False]
    assert not [kind for device, kind in people.done if device == "dev_b"]


async def test_noise_is_shared_out_and_the_opened_mean_is_near_the_clear_one(
    service: ServiceFixture, tmp_path: Path
) -> None:
    client = await service.start()
    people = Committee.of(service, client, tmp_path, DEVICES)
    parameters = to_struct(SECURE | {"privacy": {"noise_multiplier": 0.01}})
    task_id = await secure_task(
        client, parameters=parameters, privacy="uniform", training_json=json.dumps({"clip_norm": 2.0})
    )
    await people.round({device: change_of(device) for device in DEVICES})
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    model = await client.model(ended.model_digests[0])
    mean = np.mean([change_of(device) for device in DEVICES], axis=0)
    assert np.all(np.abs(model - mean) < 0.1)
    assert not np.array_equal(model, mean.astype(np.float32)), "there is noise in it"


class UnreadableFiles:
    """A store of model files that fails every access and notes that it was asked."""

    def __init__(self) -> None:
        self._asked = False

    def __getattr__(self, name: str) -> Any:
        self._asked = True
        raise OSError(f"unreadable: {name}")

    async def were_asked(self) -> bool:
        return self._asked


@pytest.mark.parametrize("state", ["selecting", "open", "checking", "agreeing", "answering", "closing"])
async def test_a_crash_in_any_state_changes_no_bit(service: ServiceFixture, tmp_path: Path, state: str) -> None:
    client = await service.start()
    people = Committee.of(service, client, tmp_path, DEVICES)
    task_id = await secure_task(client)

    async def crash() -> None:
        """As after kill -9: what was in memory is gone, the database and the blobs are there."""
        await people.client.app.conductor.stop()
        people.client = await service.start()

    async def done(kind: DutyKind, times: int = 1) -> bool:
        return [item for _, item in people.done].count(kind) >= times

    if state == "selecting":
        await people.attend(lambda: done(DutyKind.KEY_OFFER, 2), among=["dev_a", "dev_b"])
        await crash()
    await people.until_work("dev_a")
    for device in DEVICES[:3]:
        await people.deliver(device, change_of(device), weight=weight_of(device))
    if state == "open":
        await crash()
    for device in DEVICES[3:]:
        await people.deliver(device, change_of(device), weight=weight_of(device))
    for at, kind in (("checking", DutyKind.READY_CHECK), ("agreeing", DutyKind.COMMIT), ("answering", DutyKind.ANSWER)):
        if state == at:
            await people.attend(lambda kind=kind: done(kind))  # type: ignore[misc]
            await crash()
    if state == "closing":
        files = UnreadableFiles()
        object.__setattr__(people.client.app.conductor.unmasking, "model_files", files)
        # A sum closes once enough clerks answered: the last one may never be asked, so wait for the closing itself.
        await people.attend(files.were_asked)
        await crash()
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    model = (await people.client.model(ended.model_digests[0])).tobytes()
    assert model == await clear_model(people.client, DEVICES)


async def test_restarted_clerk_repeats_its_ready_check_agreement_and_answer(
    service: ServiceFixture, tmp_path: Path
) -> None:
    client = await service.start()
    people = Committee.of(service, client, tmp_path, DEVICES)
    task_id = await secure_task(client)
    await people.round({device: change_of(device) for device in DEVICES}, weight_of)

    async def all_agreed() -> bool:
        return [kind for _, kind in people.done].count(DutyKind.COMMIT) >= 4

    await people.attend(all_agreed)
    people.desks.clear()
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    assert (await client.model(ended.model_digests[0])).tobytes() == await clear_model(client, DEVICES)


async def test_a_missed_quorum_extends_the_session_and_what_came_stays(service: ServiceFixture, tmp_path: Path) -> None:
    client = await service.start()
    people = Committee.of(service, client, tmp_path, DEVICES)
    task_id = await secure_task(client, round_seconds=2.0)
    await people.until_work("dev_a")
    for device in DEVICES[:3]:  # four are needed
        await people.deliver(device, change_of(device), weight=weight_of(device))

    async def extended() -> bool:
        return bool(await events_of(client, task_id, words.EVENT_KIND_ROUND_REOPENED))

    await people.attend(extended)
    await people.deliver("dev_d", change_of("dev_d"), weight=weight_of("dev_d"))
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    assert (await client.model(ended.model_digests[0])).tobytes() == await clear_model(client, DEVICES[:4])
    assert not await events_of(client, task_id, words.EVENT_KIND_SUM_FAILED)


async def test_the_model_carries_the_noise_that_was_promised_and_no_more(
    service: ServiceFixture, tmp_path: Path
) -> None:
    """Updates of zeros: the model is noise alone, of deviation share·√|S| / (2^scale·|S|), z·clip·√(|S|/h)/|S|."""
    client, size, noise, clip = await service.start(), 4_000, 2.0, 0.5
    people = Committee.of(service, client, tmp_path, DEVICES)
    parameters = to_struct(SECURE | {"privacy": {"noise_multiplier": noise}})
    task_id = await secure_task(
        client, privacy="uniform", parameters=parameters, training_json=json.dumps({"clip_norm": clip}),
        model_digests=[await client.upload_model(np.zeros(size, np.float32))],
    )  # fmt: skip
    await people.until_work("dev_a")
    terms = Terms.read((await client.get_work("dev_a")).sum)
    for device in DEVICES[:-1]:  # one is lost: what the five add is still enough, and more than the least
        await people.deliver(device, np.zeros(size))
    set_principal(Principal("device", "dev_f"))
    await client.work.DeclineWork(pb.DeclineWorkRequest(task_id=task_id, round=1, device_id="dev_f", why="no"))
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    result = await client.model(ended.model_digests[0])
    expected = noise * clip * (5 / terms.honest) ** 0.5 / 5
    assert result.std() == pytest.approx(expected, rel=6 / (2 * size) ** 0.5)
    assert abs(result.mean()) < 6 * expected / size**0.5


@pytest.mark.slow
async def test_failed_session_repeats_with_noise_and_is_given_up_without(
    service: ServiceFixture, tmp_path: Path
) -> None:
    client = await service.start()
    people = Committee.of(service, client, tmp_path, DEVICES)
    for noise in (0.0, 0.01):
        people.silent.clear()
        parameters = SECURE | {"sums": {"mode": "secure", "offer_seconds": 20, "clerk_seconds": 16}}
        if noise:
            parameters |= {"privacy": {"noise_multiplier": noise}}
        task_id = await secure_task(
            client,
            name=f"noise {noise}",
            parameters=to_struct(parameters),
            privacy="uniform" if noise else "none",
            max_attempts=2,
        )
        await people.round({device: change_of(device) for device in DEVICES}, lambda _: 10.0)
        people.silent |= {"dev_a", "dev_b"}  # two of four clerks: q = 3 cannot be had

        async def failed(task_id: str = task_id) -> bool:
            return bool(await events_of(client, task_id, words.EVENT_KIND_SUM_FAILED))

        await people.attend(failed)
        if noise:
            people.silent.clear()
            await people.round({device: change_of(device) for device in DEVICES})
        ended = await people.finish(task_id)
        if noise:
            assert ended.state == words.TASK_STATE_FINISHED, ended.reason
        else:
            assert ended.state == words.TASK_STATE_FAILED
            assert "without noise a device gives one update for a model" in ended.reason
            assert ended.model_digests[0] == ended.specification.model_digests[0]


async def test_a_task_whose_devices_have_too_few_owners_does_not_start(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(DEVICES, min_devices=4, parameters=to_struct(SECURE))
    with pytest.raises(Conflict, match="have 1 owners") as refused:
        await client.start_task(task.id)
    assert refused.value.reason == "too_few_clerks"


MANY = [f"dev_{letter}" for letter in "abcdefghij"]


async def test_cohorts_are_sums_of_their_own_and_one_that_fails_is_left_out(
    service: ServiceFixture, tmp_path: Path
) -> None:
    client = await service.start()
    people = Committee.of(service, client, tmp_path, MANY)
    rules = {"sums": {"mode": "secure", "cohort_devices": 5, "offer_seconds": 20, "clerk_seconds": 40}}
    task_id = await secure_task(
        client, MANY, parameters=to_struct(rules), min_devices=5, quorum=0.5, rounds=2, max_attempts=1
    )
    await people.until_work("dev_a")
    await people.attend(lambda: _all_have_work(people, MANY))
    cohorts: dict[int, list[str]] = {}
    for device in MANY:
        item = await client.get_work(device)
        cohorts.setdefault(Terms.read(item.sum).cohort, []).append(device)
    assert sorted(map(len, cohorts.values())) == [5, 5]
    for device in MANY:
        await people.deliver(device, change_of(device))
    await people.attend(lambda: _all_have_work(people, MANY))
    first = await client.tasks.GetRound(pb.GetRoundRequest(task_id=task_id, number=1))
    model = await client.model(first.round.model_digests[0])
    assert np.allclose(model, np.mean([change_of(device) for device in MANY], axis=0), atol=1e-6)
    # In the second round all of one cohort decline: the other is enough.
    out = [d for d in MANY if Terms.read((await client.get_work(d)).sum).cohort == 0]
    for device in MANY:
        if device in out:
            set_principal(Principal("device", device))
            await client.work.DeclineWork(
                pb.DeclineWorkRequest(task_id=task_id, round=2, device_id=device, why="the clerks are strangers")
            )
        else:
            await people.deliver(device, change_of(device, 2))
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    step = await client.model(ended.model_digests[0]) - model
    there = [change_of(device, 2) for device in MANY if device not in out]
    assert np.allclose(step, np.mean(there, axis=0), atol=1e-6)
    (failed,) = await events_of(client, task_id, words.EVENT_KIND_SUM_FAILED)
    assert "of 5 devices declined" in failed


async def test_a_robust_rule_works_on_the_means_of_cohorts(service: ServiceFixture, tmp_path: Path) -> None:
    client = await service.start()
    crowd = [f"dev_{letter}{number}" for letter in "abcde" for number in range(5)]
    people = Committee.of(service, client, tmp_path, crowd)
    rules = {"sums": {"mode": "secure", "cohort_devices": 5, "offer_seconds": 60, "clerk_seconds": 60}}
    task_id = await secure_task(client, crowd, parameters=to_struct(rules), min_devices=25, rule="median")
    await people.attend(lambda: _all_have_work(people, crowd), seconds=60.0)
    means: dict[int, list[list[float]]] = {}
    for device in crowd:
        item = await client.get_work(device)
        # One member poisons its cohort.
        change = [50.0, 50.0, 50.0] if device == "dev_a0" else change_of(f"dev_{device[-2]}", int(device[-1]) + 1)
        means.setdefault(Terms.read(item.sum).cohort, []).append(change)
        await people.deliver(device, change)
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    expected = np.median([np.mean(changes, axis=0) for changes in means.values()], axis=0)
    assert np.allclose(await client.model(ended.model_digests[0]), expected, atol=1e-6)
    (message,) = await events_of(client, task_id, words.EVENT_KIND_ROUND_COMBINED)
    assert message.startswith("median used 1 of 5 sums; set aside: sum ")
    assert message.endswith("(in the middle of no coordinate) and 1 more")


async def _all_have_work(people: Committee, devices: list[str]) -> bool:
    for device in devices:
        if not await people.has_work(device):
            return False
    return True
