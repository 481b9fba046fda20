"""Who counts a secure sum: only clerks whose owners let them, and none that the devices in it would decline."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.secure_sums.terms import Terms
from coterie.secure_sums.uploads import make_upload
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.kit.errors import Conflict, Unprocessable
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import Principal, set_principal
from tests.attacks.sum_fixture import keys_of
from tests.contract.aggregation.committee import SECURE, Committee
from tests.contract.aggregation.conftest import Client, ServiceFixture

DEVICES = [f"dev_{letter}" for letter in "abcdef"]
NOISY = SECURE | {"privacy": {"noise_multiplier": 1.0}}


async def secure_task(client: Client, answers: dict[str, dict[str, Any]], **changes: Any) -> str:
    """A task whose devices say this of themselves when they enrol."""
    values: dict[str, Any] = {
        "min_devices": 4, "quorum": 0.65, "rounds": 1, "parameters": to_struct(SECURE),
    } | changes  # fmt: skip
    task = await client.create(DEVICES, **values)
    for device, telling in answers.items():
        set_principal(Principal("device", device))
        await client.tasks.Enrol(pb.EnrolRequest(task_id=task.id, device_id=device, samples=10, **telling))
    await client.start_task(task.id)
    return task.id


async def terms_for(people: Committee, device: str) -> tuple[pb.WorkItem, Terms]:
    await people.until_work(device)
    item = await people.client.get_work(device)
    return item, Terms.read(item.sum)


async def decline(client: Client, item: pb.WorkItem, device: str, terms: Terms, strangers: list[str]) -> None:
    set_principal(Principal("device", device))
    reasons: dict[str, Any] = {"why": "strangers", "strangers": strangers, "terms": terms.digest.hex()}
    await client.work.DeclineWork(
        pb.DeclineWorkRequest(task_id=item.task_id, round=item.round, device_id=device, **reasons)
    )


async def states(client: Client, task_id: str) -> dict[str, words.ParticipationState.ValueType]:
    set_principal(Principal("admin", "adm_1"))
    detail = await client.tasks.GetRound(pb.GetRoundRequest(task_id=task_id, number=1))
    return {part.device_id: part.state for part in detail.participations}


async def test_a_device_whose_owner_says_no_is_called_as_no_clerk(service: ServiceFixture, tmp_path: Path) -> None:
    client = await service.start()
    people = Committee.of(service, client, tmp_path, DEVICES)
    await secure_task(client, {"dev_a": {"no_clerk": True}, "dev_b": {"no_clerk": True}})
    _, terms = await terms_for(people, "dev_a")
    assert [clerk.device for clerk in terms.clerks] == DEVICES[2:]


async def test_too_few_possible_clerks_are_refused_before_the_task_starts(
    service: ServiceFixture, tmp_path: Path
) -> None:
    client = await service.start()
    Committee.of(service, client, tmp_path, DEVICES)
    with pytest.raises(Conflict, match="may be clerks have 3 owners; enrol devices of more owners") as refused:
        await secure_task(client, {device: {"no_clerk": True} for device in DEVICES[:3]})
    assert refused.value.reason == "too_few_clerks"


async def test_clerks_named_at_enrolment_are_chosen_and_kept_secret(service: ServiceFixture, tmp_path: Path) -> None:
    service.fakes.trust = {(a, b): 0.9 for a in DEVICES for b in DEVICES if a < b}
    client = await service.start()
    people = Committee.of(service, client, tmp_path, DEVICES)
    named = ["dev_c", "dev_d", "dev_e", "dev_f"]
    task_id = await secure_task(client, {"dev_f": {"clerks": named}})
    _, terms = await terms_for(people, "dev_f")
    assert [clerk.device for clerk in terms.clerks] == named
    set_principal(Principal("publisher", "pub_1"))
    reply = await client.tasks.ListEnrolments(pb.ListEnrolmentsRequest(task_id=task_id))
    assert "clerks" not in str(reply)


async def test_device_taking_none_of_the_best_clerks_is_excluded_before_terms(
    service: ServiceFixture, tmp_path: Path
) -> None:
    client = await service.start()
    people = Committee.of(service, client, tmp_path, DEVICES)
    task_id = await secure_task(client, {"dev_f": {"clerks": ["dev_f"]}})
    _, terms = await terms_for(people, "dev_a")
    assert (terms.count, terms.least) == (5, 4)
    for device in DEVICES[:5]:
        await people.deliver(device, [1.0, 2.0, 3.0])
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    assert (await states(client, task_id))["dev_f"] == words.PARTICIPATION_STATE_DECLINED
    events = [e for e in await client.events(task_id) if e.kind == words.EVENT_KIND_WORK_DECLINED]
    assert [(e.device_id, "does not accept these clerks" in e.message) for e in events] == [("dev_f", True)]


async def test_those_who_declined_clerks_get_others_in_the_next_session(
    service: ServiceFixture, tmp_path: Path
) -> None:
    service.fakes.trust = {(a, b): 0.9 for a in DEVICES for b in DEVICES if a < b}
    client = await service.start()
    people = Committee.of(service, client, tmp_path, DEVICES)
    changes = {"quorum": 1.0, "privacy": "uniform", "training_json": json.dumps({"clip_norm": 1.0})}
    task_id = await secure_task(client, {}, parameters=to_struct(NOISY), **changes)
    item, first = await terms_for(people, "dev_f")
    stranger = first.clerks[0].device
    await decline(client, item, "dev_f", first, [stranger])

    async def sits_again() -> bool:
        set_principal(Principal("device", "dev_f"))
        given = (await client.work.GetWork(pb.GetWorkRequest(device_id="dev_f"))).items
        return any(Terms.read(item.sum).session_number == 2 for item in given)

    await people.attend(sits_again)
    second = Terms.read((await client.get_work("dev_f")).sum)
    assert stranger not in [clerk.device for clerk in second.clerks]
    assert second.count == 6
    late = "it was declined while a new session was called: that says nothing about the new terms"
    await decline(client, item, "dev_f", first, [second.clerks[0].device])
    assert (await states(client, task_id))["dev_f"] == words.PARTICIPATION_STATE_ASSIGNED, late


async def test_where_no_clerks_please_enough_the_sum_is_given_up_at_once(
    service: ServiceFixture, tmp_path: Path
) -> None:
    client = await service.start()
    people = Committee.of(service, client, tmp_path, DEVICES)
    task_id = await secure_task(client, {}, quorum=1.0)
    item, terms = await terms_for(people, "dev_f")
    await decline(client, item, "dev_f", terms, [clerk.device for clerk in terms.clerks])
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FAILED
    assert "coterie circle verify" in ended.reason
    assert not [e for e in await client.events(task_id) if "session 2" in e.message and "opened" in e.message]


async def test_one_that_declined_for_a_reason_of_its_own_is_in_no_new_session(
    service: ServiceFixture, tmp_path: Path
) -> None:
    client = await service.start()
    people = Committee.of(service, client, tmp_path, DEVICES)
    task_id = await secure_task(client, {}, quorum=1.0)
    item, terms = await terms_for(people, "dev_f")
    await decline(client, item, "dev_f", terms, [])
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FAILED
    assert "5 devices could take part in a new session" in ended.reason


async def test_numbers_that_fit_no_word_are_refused_when_the_task_is_made(service: ServiceFixture) -> None:
    """Noise of 1e-9 of the range is finer than the steps that the widest noise offered leaves room for."""
    client = await service.start()
    asked = {"survey": {"question": "How warm?", "low": 15.0, "high": 30.0}}
    for least, word in ((1e-18, "no_grid"), (0.01, "")):
        offered = {"pricing": {"variance_low": least, "variance_high": 4.0, "constant": 5.0}}
        parameters = to_struct(SECURE | asked | offered)
        making = client.create(
            [], preset="survey", rounds=1, min_devices=6, parameters=parameters, name=f"noise {least}"
        )
        if not word:
            assert (await making).id
            continue
        with pytest.raises(Unprocessable, match="offer variances that are closer together") as refused:
            await making
        assert refused.value.reason == word


async def test_a_task_that_starts_by_itself_waits_for_enough_owners(service: ServiceFixture, tmp_path: Path) -> None:
    client = await service.start()
    Committee.of(service, client, tmp_path, DEVICES)
    service.fakes.owners |= dict.fromkeys(DEVICES[:4], "own_of_many")
    values: dict[str, Any] = {
        "min_devices": 4,
        "quorum": 0.65,
        "parameters": to_struct(SECURE),
        "auto_start": True,
    }
    task = await client.create(DEVICES[:5], **values)
    assert (await client.get_task(task.id)).state == words.TASK_STATE_CREATED
    with pytest.raises(Conflict, match="enrol devices of more owners") as refused:
        await client.start_task(task.id)
    assert refused.value.reason == "too_few_clerks"
    service.fakes.owners |= {device: f"own_{device}" for device in DEVICES[:4]}
    set_principal(Principal("device", "dev_f"))
    await client.tasks.Enrol(pb.EnrolRequest(task_id=task.id, device_id="dev_f", samples=10))
    assert (await client.get_task(task.id)).state == words.TASK_STATE_RUNNING


async def test_device_out_of_range_in_three_rounds_is_excluded_from_the_task(
    service: ServiceFixture, tmp_path: Path
) -> None:
    """Each round draws new cohorts: only the spoiler is in all three."""
    devices = [f"dev_{letter}" for letter in "abcdefghijkl"]
    client = await service.start()
    people = Committee.of(service, client, tmp_path, devices)
    service.fakes.last_seen_at = time.time() + 3600.0  # else those left out would count as dead
    cohorts = {"sums": {**SECURE["sums"], "cohort_devices": 6}}
    changes: dict[str, Any] = {"rounds": 4, "quorum": 0.5, "min_devices": 6, "max_attempts": 1, "seed": 2}
    task = await client.create(devices, parameters=to_struct(cohorts), **changes)
    await client.start_task(task.id)
    seen: list[set[str]] = []
    for number in (1, 2, 3):
        mates = set()
        for device in devices:
            await people.until_work(device)
            item = await client.get_work(device)
            terms = Terms.read(item.sum)
            assert terms.round == number
            values = np.full(terms.elements, 2**62) if device == "dev_a" else np.ones(terms.elements, np.int64)
            upload, signature = make_upload(values, terms, device, keys_of(device), [], 0)
            await people.send(item, device, terms, upload, signature, weight=10.0)
            mates |= {(device, terms.cohort)}
        (spoilt,) = [cohort for device, cohort in mates if device == "dev_a"]
        seen.append({device for device, cohort in mates if cohort == spoilt})
    assert set.intersection(*seen) == {"dev_a"}, "with this seed no other device is always beside it"
    await people.until_work("dev_b")
    left = [e for e in await client.events(task.id) if e.kind == words.EVENT_KIND_DEVICE_REJECTED and e.round == 4]
    assert [(e.device_id, "the task excludes it" in e.message) for e in left] == [("dev_a", True)]
    assert not await people.has_work("dev_a")


async def test_waiting_device_is_notified_at_once_and_others_never(service: ServiceFixture, tmp_path: Path) -> None:
    client = await service.start()
    people = Committee.of(service, client, tmp_path, DEVICES)
    await secure_task(client, {"dev_a": {"no_clerk": True}, "dev_b": {"no_clerk": True}})
    set_principal(Principal("device", "dev_c"))
    asked = pb.GetWorkRequest(device_id="dev_c", wait_seconds=30.0, clerk=True)
    called = await client.work.GetWork(asked, timeout=20)  # there is no work before the clerks have offered themselves
    assert (called.duties, list(called.items)) == (True, [])
    again = await client.work.GetWork(asked, timeout=20)  # an answer that was lost is given again
    assert again.duties
    for device in ("dev_a", "dev_b"):
        set_principal(Principal("device", device))
        reply = await client.work.GetWork(pb.GetWorkRequest(device_id=device, clerk=True))
        assert not reply.duties
    for device in DEVICES[2:]:
        await people.serve(device)
    item, _ = await terms_for(people, "dev_c")
    assert item.sum
