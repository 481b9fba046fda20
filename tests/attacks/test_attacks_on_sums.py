"""Attacks on the platform's side of secure sums (§9 of the specification): liars among clerks, garbage, the curious."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacl.public import PrivateKey

from coterie.privacy.stream import FreshStream
from coterie.records.enums import DutyKind
from coterie.secure_sums import masks
from coterie.secure_sums.clerk import Answer, ReadyCheck
from coterie.secure_sums.contribution import contribution
from coterie.secure_sums.letters import FaultKind
from coterie.secure_sums.masks import digest
from coterie.secure_sums.terms import Place, Terms, answer_message, offer_message
from coterie.secure_sums.uploads import Upload, make_upload
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.aggregation.secure_sums.survivor_agreement import SurvivorAgreement
from services.kit.errors import CoterieError
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import Principal, set_principal
from tests.attacks.sum_fixture import keys_of
from tests.contract.aggregation.committee import SECURE, Committee
from tests.contract.aggregation.conftest import Client, ServiceFixture, service
from tests.contract.aggregation.test_aggregation_sums import (
    DEVICES,
    change_of,
    clear_model,
    events_of,
    secure_task,
    weight_of,
)

__all__ = ["service"]
SQLITE = pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
"""Rights of clerks and devices do not depend on the database; storage does, and runs on both."""


async def seated(service: ServiceFixture, folder: Path, **changes: Any) -> tuple[Client, Committee, str]:
    client = await service.start()
    people = Committee.of(service, client, folder, DEVICES)
    return client, people, await secure_task(client, **changes)


# --- 9: a lying clerk -------------------------------------------------------------------------------------------------


def off_by_one(device: str, terms: dict[str, Terms]) -> Any:
    """A clerk that tells its first share with one word off by one, and signs that."""

    def lie(kind: DutyKind, reply: Any) -> Any:
        if kind is not DutyKind.ANSWER:
            return reply
        assert isinstance(reply, Answer)
        first = min(reply.sums)
        wrong = reply.sums[first].copy()
        wrong[0] += 1
        digests = {**reply.digests, first: digest(wrong.tobytes())}
        signature = keys_of(device).sign(answer_message(terms["now"].digest, reply.survivors, digests))
        return dataclasses.replace(reply, digests=digests, signature=signature, sums={**reply.sums, first: wrong})

    return lie


async def test_a_clerk_off_by_one_is_outvoted_named_and_never_chosen_again(
    service: ServiceFixture, tmp_path: Path
) -> None:
    client, people, task_id = await seated(service, tmp_path, rounds=2)
    await people.until_work("dev_a")
    terms = {"now": Terms.read((await client.get_work("dev_a")).sum)}
    people.twists["dev_b"] = off_by_one("dev_b", terms)
    people.may_answer = lambda device: device == "dev_b" or people.has("dev_b", DutyKind.ANSWER)
    for device in DEVICES:
        await people.deliver(device, change_of(device), weight=weight_of(device))
    await people.until_work("dev_a")
    second = Terms.read((await client.get_work("dev_a")).sum)
    assert "dev_b" not in {clerk.device for clerk in second.clerks}
    for device in DEVICES:
        await people.deliver(device, change_of(device, 2), weight=weight_of(device))
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    assert (await client.model(ended.model_digests[0])).tobytes() == await clear_model(client, DEVICES, rounds=2)
    (event,) = [e for e in await client.events(task_id) if e.kind == words.EVENT_KIND_CLERK_OUTVOTED]
    assert event.device_id == "dev_b"
    against = [i for i in service.fakes.interactions.values() if "clerk" in i.note]
    assert against
    assert all("dev_b" in (i.device_a, i.device_b) and not i.positive for i in against)


@SQLITE
async def test_a_lie_while_the_sum_closes_is_counted_too(
    service: ServiceFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, people, task_id = await seated(service, tmp_path)
    await people.until_work("dev_a")
    terms = {"now": Terms.read((await client.get_work("dev_a")).sum)}
    people.twists["dev_b"], close, closing = (
        off_by_one("dev_b", terms),
        SurvivorAgreement.accept_shares,
        asyncio.Event(),
    )

    def may_answer(device: str) -> bool:
        return closing.is_set() if device == "dev_b" else people.has("dev_b", DutyKind.COMMIT)

    async def close_after_one_more(self: SurvivorAgreement, *counted: Any) -> None:
        """The votes of the others are counted, and nothing is written yet: now the last clerk speaks."""
        closing.set()
        if not people.has("dev_b", DutyKind.ANSWER):
            await asyncio.create_task(people.serve("dev_b"))  # the principal is set in a separate context
        await close(self, *counted)

    people.may_answer = may_answer
    monkeypatch.setattr(SurvivorAgreement, "accept_shares", close_after_one_more)
    for device in DEVICES:
        await people.deliver(device, change_of(device), weight=weight_of(device))
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    assert (await client.model(ended.model_digests[0])).tobytes() == await clear_model(client, DEVICES)
    (event,) = [e for e in await client.events(task_id) if e.kind == words.EVENT_KIND_CLERK_OUTVOTED]
    assert event.device_id == "dev_b"


# --- 10: a slandering clerk -------------------------------------------------------------------------------------------


@SQLITE
async def test_a_slandering_clerk_is_left_out_and_its_victims_are_not(service: ServiceFixture, tmp_path: Path) -> None:
    client, people, task_id = await seated(service, tmp_path)

    def slander(kind: DutyKind, reply: Any) -> Any:
        if kind is not DutyKind.READY_CHECK:
            return reply
        assert isinstance(reply, ReadyCheck)
        out: dict[str, FaultKind] = dict.fromkeys(reply.ready[:3], "seed")
        return dataclasses.replace(reply, ready=reply.ready[3:], faults=out)

    people.twists["dev_c"] = slander
    await people.round({device: change_of(device) for device in DEVICES}, weight_of)
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    assert (await client.model(ended.model_digests[0])).tobytes() == await clear_model(client, DEVICES)
    assert {w.outcome for w in service.fakes.settled[task_id, 1].work} == {words.PARTICIPATION_STATE_DELIVERED}


# --- 7, 8: a device that seals something else -------------------------------------------------------------------------


@SQLITE
@pytest.mark.parametrize("clerks_cheated", [1, 4])
async def test_a_device_that_seals_damaged_letters_loses_its_own_place_alone(
    service: ServiceFixture, tmp_path: Path, clerks_cheated: int
) -> None:
    client, people, task_id = await seated(service, tmp_path)
    await people.until_work("dev_a")
    item = await client.get_work("dev_f")
    terms = Terms.read(item.sum)
    upload, _ = people.masked("dev_f", terms, change_of("dev_f"), 10.0)
    letters = tuple(
        bytes([*letter[:-1], letter[-1] ^ 1]) if at < clerks_cheated else letter
        for at, letter in enumerate(upload.letters)
    )
    broken = dataclasses.replace(upload, letters=letters)
    signature = keys_of("dev_f").sign(broken.message(terms, "dev_f"))
    await people.send(item, "dev_f", terms, broken, signature, weight=10.0)
    for device in DEVICES[:-1]:
        await people.deliver(device, change_of(device), weight=weight_of(device))
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    assert (await client.model(ended.model_digests[0])).tobytes() == await clear_model(client, DEVICES[:-1])
    outcomes = {w.device_id: w.outcome for w in service.fakes.settled[task_id, 1].work}
    # Two clerks that fault it prove that it cheated; one may be slandering.
    cheated = words.PARTICIPATION_STATE_REJECTED if clerks_cheated >= 2 else words.PARTICIPATION_STATE_DROPPED
    assert outcomes["dev_f"] == cheated
    bad = [i for i in service.fakes.interactions.values() if "dev_f" in (i.device_a, i.device_b) and not i.positive]
    assert bool(bad) == (clerks_cheated >= 2), "one fault is neutral"


# --- 11: garbage ------------------------------------------------------------------------------------------------------


@SQLITE
async def test_random_words_are_out_of_range_and_the_model_stays(service: ServiceFixture, tmp_path: Path) -> None:
    client, people, task_id = await seated(service, tmp_path, max_attempts=1)
    await people.until_work("dev_a")
    item = await client.get_work("dev_f")
    terms = Terms.read(item.sum)
    rng = np.random.default_rng(1)
    noise = rng.integers(2**61, 2**62, terms.elements)
    garbage, signature = make_upload(noise, terms, "dev_f", keys_of("dev_f"), [], 0)
    await people.send(item, "dev_f", terms, garbage, signature, weight=10.0)
    for device in DEVICES[:-1]:
        await people.deliver(device, change_of(device), weight=weight_of(device))
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FAILED
    assert "sum_out_of_range" in ended.reason
    assert ended.model_digests[0] == ended.specification.model_digests[0]


# --- at the door ------------------------------------------------------------------------------------------------------


def damaged(upload: Upload, what: str) -> Upload:
    changes: dict[str, Any] = {
        "words": {"masked": upload.masked[:-1]},
        "type": {"masked": upload.masked.astype(np.uint32)},
        "letters": {"letters": upload.letters[:-1]},
        "commitments": {"commitments": upload.commitments[:-1]},
        "root": {"commitments": (bytes(32), *upload.commitments[1:])},
        "letter key": {"letter_key": bytes(32)},
        "one word": {"masked": upload.masked + np.array([1] + [0] * (upload.masked.size - 1), upload.masked.dtype)},
    }
    return dataclasses.replace(upload, **changes[what])


@SQLITE
async def test_what_is_not_exactly_devices_own_masked_update_is_refused_at_door(
    service: ServiceFixture, tmp_path: Path
) -> None:
    client, people, _ = await seated(service, tmp_path)
    await people.until_work("dev_a")
    item = await client.get_work("dev_a")
    terms = Terms.read(item.sum)
    upload, signature = people.masked("dev_a", terms, change_of("dev_a"), 10.0)

    async def refused(**changes: Any) -> str:
        sent: dict[str, Any] = {"upload": upload, "signature": signature, "weight": 10.0} | changes
        with pytest.raises(CoterieError) as error:
            await people.send(item, "dev_a", terms, **sent)
        return error.value.reason

    for what in ("words", "type", "letters", "commitments", "root", "letter key", "one word"):
        assert await refused(upload=damaged(upload, what)) == "bad_masked_update", what
    assert await refused(signature=bytes(64)) == "bad_masked_update"
    assert await refused(body=b"no tensors at all, but long enough to look at") == "bad_masked_update"
    assert await refused(weight=11.0) == "bad_masked_update"
    assert await refused(metrics={"loss": 0.5}) == "metrics_not_taken"
    assert await refused(sum=pb.SumSeal(terms="00" * 32, signature=signature.hex())) == "terms_changed"
    assert await refused(form=words.FORM_MEAN) == "bad_masked_update"
    other, _ = people.masked("dev_b", terms, change_of("dev_b"), 10.0)  # another device's, signed by this one
    assert await refused(upload=other) == "bad_masked_update"
    assert (await people.send(item, "dev_a", terms, upload, signature, weight=10.0)).outcome == words.RECEPTION_ACCEPTED
    assert (await people.send(item, "dev_a", terms, upload, signature, weight=10.0)).outcome == words.RECEPTION_REPEATED
    again, signed = people.masked("dev_a", terms, change_of("dev_a"), 10.0)
    with pytest.raises(CoterieError) as twice:
        await people.send(item, "dev_a", terms, again, signed, weight=10.0)
    assert twice.value.reason == "already_delivered"


@SQLITE
async def test_clerks_read_only_their_own_letters_and_speak_for_themselves(
    service: ServiceFixture, tmp_path: Path
) -> None:
    client, people, task_id = await seated(service, tmp_path)
    await people.round({device: change_of(device) for device in DEVICES}, weight_of)
    place = pb.SumPlace(task_id=task_id, round=1, cohort=0, session_number=1)
    sums = client.sums

    async def reason(call: Any) -> str:
        try:
            await call
        except CoterieError as error:
            return error.reason
        return ""

    async def ready_check_duty() -> bool:
        set_principal(Principal("device", "dev_a"))
        result = await sums.ListDuties(pb.ListDutiesRequest(device_id="dev_a"))
        return any(duty.kind == words.DUTY_KIND_READY_CHECK for duty in result.duties)

    await people.attend(ready_check_duty, among=[])
    set_principal(Principal("device", "dev_e"))  # takes part, but not as a clerk
    stranger = pb.SumReader(place=place, device_id="dev_e")
    assert await reason(sums.ListSumLetters(stranger)) == "not_a_clerk"
    assert await reason(sums.GetSurvivors(stranger)) == "not_a_clerk"
    assert await reason(sums.GetCommits(stranger)) == "not_a_clerk"
    read = pb.ReadSumRequest(place=place, device_id="dev_e", document=words.SUM_DOCUMENT_CANDIDATES)
    assert await reason(sums.ReadSum(read)) == "not_a_clerk"
    read.document = words.SUM_DOCUMENT_PARTICIPANTS
    assert not await reason(sums.ReadSum(read)), "devices of the round read the participants"
    set_principal(Principal("device", "dev_outside"))
    read.device_id = "dev_outside"
    assert await reason(sums.ReadSum(read)) == "not_a_clerk"
    assert await reason(sums.ListSumLetters(pb.SumReader(place=place, device_id="dev_a"))) == "not_allowed"
    own = {}
    for clerk in ("dev_a", "dev_b"):
        set_principal(Principal("device", clerk))
        reply = await sums.ListSumLetters(pb.SumReader(place=place, device_id=clerk))
        own[clerk] = {(letter.digest, letter.start) for letter in reply.letters}
        assert len(reply.letters) == len(DEVICES)
    assert not own["dev_a"] & own["dev_b"]
    set_principal(Principal("device", "dev_a"))
    early = pb.PutCommitRequest(place=place, device_id="dev_a", digest="00" * 32, signature="00" * 64)
    assert await reason(sums.PutCommit(early)) == "sum_over"
    stale = pb.PutReadyCheckRequest(place=place, device_id="dev_a", candidates="00" * 32)
    assert await reason(sums.PutReadyCheck(stale)) == "sum_over"
    place.session_number = 9
    assert await reason(sums.GetSurvivors(pb.SumReader(place=place, device_id="dev_a"))) == "unknown_sum"


@SQLITE
async def test_an_offer_is_signed_by_the_clerk_itself_for_this_very_session(
    service: ServiceFixture, tmp_path: Path
) -> None:
    client, people, task_id = await seated(service, tmp_path)

    async def called() -> bool:
        set_principal(Principal("device", "dev_a"))
        return bool((await client.sums.ListDuties(pb.ListDutiesRequest(device_id="dev_a"))).duties)

    await people.attend(called, among=[])
    place, key = Place(task_id, 0, 1, 1), bytes(PrivateKey.generate().public_key)
    where = pb.SumPlace(task_id=task_id, round=1, cohort=0, session_number=1)

    async def offer(signer: str, at: Place) -> str:
        signature = keys_of(signer).sign(offer_message(at, "dev_a", key))
        key_offer = pb.PutKeyOfferRequest(
            place=where, device_id="dev_a", session_key=key.hex(), signature=signature.hex()
        )
        set_principal(Principal("device", "dev_a"))
        try:
            await client.sums.PutKeyOffer(key_offer)
        except CoterieError as error:
            return error.reason
        return ""

    assert await offer("dev_b", place) == "bad_commit"
    assert await offer("dev_a", dataclasses.replace(place, session_number=2)) == "bad_commit"
    assert await offer("dev_a", place) == ""
    assert await offer("dev_a", place) == "", "the same again"
    key = bytes(PrivateKey.generate().public_key)
    assert await offer("dev_a", place) == "conflicting_commit"


# --- 12: what the platform keeps --------------------------------------------------------------------------------------


async def test_nothing_stored_by_the_platform_holds_a_planted_update_or_a_seed(
    service: ServiceFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Everything the platform stores and logs is searched while the round is open, counting and done."""
    if service.settings.database_url:
        pytest.skip("files are searched; PostgreSQL keeps its own")
    (tmp_path / "clerks").mkdir()
    client, people, task_id = await seated(service, tmp_path / "clerks")
    seeds: list[bytes] = []
    sealed = masks.commitments

    def noted(terms: bytes, device: str, drawn: Any) -> list[bytes]:
        if device == "dev_e":
            seeds.extend(drawn)
        return sealed(terms, device, drawn)

    monkeypatch.setattr(masks, "commitments", noted)
    planted = [float(np.float32(value)) for value in (0.123456, -0.654321, 0.777777)]
    await people.until_work("dev_a")
    terms = Terms.read((await client.get_work("dev_e")).sum)
    values = contribution(np.array(planted, np.float32), terms, 10.0, FreshStream())
    needles = [np.array(planted, np.float32).tobytes(), values.tobytes(), values.astype("<i8")[:1].tobytes()]
    for device in DEVICES:
        await people.deliver(device, planted if device == "dev_e" else change_of(device))

    def search() -> list[str]:
        result = []
        for file in tmp_path.rglob("*"):
            if file.is_file() and "clerks" not in file.parts:
                content = file.read_bytes()
                result += [f"{file.name}: {n.hex()[:16]}" for n in [*needles, *seeds] if n in content]
                result += [f"{file.name}: {s.hex()[:16]}" for s in seeds if s.hex().encode() in content]
        return result

    assert seeds
    assert search() == []
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    assert search() == []
    log = capfd.readouterr()
    assert not any(seed.hex() in log.out + log.err for seed in seeds)


# --- tasks that cannot be secure --------------------------------------------------------------------------------------


@SQLITE
@pytest.mark.parametrize(
    ("changes", "parameters", "message"),
    [
        ({"preset": "mesh"}, {}, "no common sum"),
        ({"preset": "multitask", "model_digests": ["m", "m"]}, {}, "choose their own model"),
        ({"min_devices": 3}, {}, "raise min_devices to 4"),
        ({"rule": "median"}, {}, "at least 5 of them"),
        ({"rule": "trust+median"}, {"sums": {"cohort_devices": 5}}, "leave trust out"),
        ({}, {"sums": {"clerks": 4, "threshold": 4}}, ""),
        ({}, {"sums": {"clerks": 8, "threshold": 2}}, "take 4 and 2"),
        ({}, {"sums": {"colluders": 0}}, "counts the clerks too"),
        ({}, {"sums": {"colluders": 9}}, "none is sure to be honest"),
        ({}, {"sums": {"cohort_devices": 3}}, "cohort_devices must be 0 or at least 5"),
        ({}, {"sums": {"mode": "hidden"}}, "clear"),
        ({"mode": "asynchronous"}, {}, "secure sum"),
    ],
)
async def test_tasks_unfit_for_secure_sums_are_refused_with_what_to_change(
    service: ServiceFixture, changes: dict[str, Any], parameters: dict[str, Any], message: str
) -> None:
    client = await service.start()
    digest_ = await client.upload_model(np.zeros(3, np.float32))
    request = {**SECURE, **parameters, "sums": {"mode": "secure", **parameters.get("sums", {})}}
    values: dict[str, Any] = {"min_devices": 5, "parameters": to_struct(request)} | changes
    if "model_digests" in values:
        values["model_digests"] = [digest_] * 2
    if not message:
        assert (await client.create([], **values)).id
        return
    with pytest.raises(CoterieError, match=message):
        await client.create([], **values)


@SQLITE
async def test_without_events_that_blame_no_device_is_named(service: ServiceFixture, tmp_path: Path) -> None:
    client, people, task_id = await seated(service, tmp_path)
    await people.round({device: change_of(device) for device in DEVICES}, weight_of)
    await people.finish(task_id)
    blaming = (words.EVENT_KIND_CLERK_OUTVOTED, words.EVENT_KIND_CLERK_SILENT, words.EVENT_KIND_SUM_FAILED)
    assert await events_of(client, task_id, *blaming) == []
