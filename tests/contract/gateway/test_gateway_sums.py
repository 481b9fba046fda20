"""Secure sums at the edge: own letters only, documents byte for byte, share sums of one size."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from coterie.agent.cache import BlobCache
from coterie.client import Platform
from coterie.errors import CorruptDownload, Refused, RoundOver
from coterie.secure_sums.terms import BadTerms, Place
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.kit.database.blobs import BlobStore
from services.kit.errors import Conflict
from tests.contract.gateway.conftest import bearer
from tests.contract.gateway.fakes import FakePlatform

PLACE = Place("tsk_1", cohort=2, round=3, session_number=1)
AT = "/v1/tasks/tsk_1/rounds/3/sums/2/1"
T = TypeVar("T")


class SumOver(Conflict):
    """As the aggregation server says it."""


async def as_device(served: int, folder: Path, call: Callable[[Platform], T]) -> T:
    def ask() -> T:
        with Platform(f"http://127.0.0.1:{served}", "device-key", cache=BlobCache(folder / "cache")) as client:
            return call(client)

    return await asyncio.to_thread(ask)


async def test_letters_are_cut_out_of_the_updates_and_asked_for_as_the_caller(
    served: int, platform: FakePlatform, tmp_path: Path
) -> None:
    digest = await BlobStore.in_folder(tmp_path / "blobs").put_bytes(b"masked words, letter one, letter two")
    platform.replies["ListSumLetters"] = pb.ListSumLettersReply(
        letters=[
            pb.SumLetter(device_id="dev_1", digest=digest, start=14, length=10),
            pb.SumLetter(device_id="dev_2", digest=digest, start=26, length=10),
        ]
    )
    result = await as_device(served, tmp_path, lambda p: p.sum_letters(PLACE))
    assert result == {"dev_1": b"letter one", "dev_2": b"letter two"}
    (call,) = platform.called("ListSumLetters")
    assert call.request.device_id == call.caller.subject == "dev_1"
    assert call.request.place == pb.SumPlace(task_id="tsk_1", round=3, cohort=2, session_number=1)


async def test_documents_come_byte_for_byte(served: int, platform: FakePlatform, tmp_path: Path) -> None:
    platform.replies["ReadSum"] = pb.SumText(text='[["dev_1","00"]]')
    digest = hashlib.sha256(b'[["dev_1","00"]]').hexdigest()
    assert await as_device(served, tmp_path, lambda p: p.sum_candidates(PLACE)) == '[["dev_1","00"]]'
    for _ in range(2):  # the second time from the cache
        assert await as_device(served, tmp_path, lambda p: p.sum_participants(PLACE, digest)) == '[["dev_1","00"]]'
    assert len(platform.called("ReadSum")) == 2
    with pytest.raises(CorruptDownload):
        await as_device(served, tmp_path, lambda p: p.sum_participants(PLACE, "0" * 64))


async def test_survivors_out_of_order_or_twice_are_not_read(
    served: int, platform: FakePlatform, tmp_path: Path
) -> None:
    def listed(*names: str) -> pb.Survivors:
        return pb.Survivors(survivors=[pb.Survivor(device_id=name, root="ab" * 32) for name in names], digest="cd" * 32)

    platform.replies["GetSurvivors"] = listed("a", "b")
    survivors = await as_device(served, tmp_path, lambda p: p.sum_survivors(PLACE))
    assert survivors == [("a", b"\xab" * 32), ("b", b"\xab" * 32)]
    for wrong in (("b", "a"), ("a", "a")):
        platform.replies["GetSurvivors"] = listed(*wrong)
        with pytest.raises(BadTerms):
            await as_device(served, tmp_path, lambda p: p.sum_survivors(PLACE))


async def test_a_share_sum_has_exactly_the_size_of_its_terms(
    served: int, platform: FakePlatform, tmp_path: Path
) -> None:
    platform.replies["AdmitShare"] = pb.AdmitShareReply(size_bytes=16)
    await as_device(served, tmp_path, lambda p: p.put_share(PLACE, "dev_1", 3, bytes(16)))
    (taken,) = platform.called("PutShare")
    assert (taken.request.share, taken.request.digest) == (3, hashlib.sha256(bytes(16)).hexdigest())
    for words in (bytes(15), bytes(17)):
        with pytest.raises(Refused):
            await as_device(served, tmp_path, lambda p, words=words: p.put_share(PLACE, "dev_1", 3, words))  # type: ignore[misc]
    assert len(platform.called("PutShare")) == 1


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/key-offers/dev_2", {"session_key": "00" * 32, "signature": "00" * 64}),
        ("PUT", "/ready-checks/dev_2", {"candidates": "00" * 32, "ready": []}),
        ("PUT", "/commits/dev_2", {"digest": "00" * 32, "signature": "00" * 64}),
        ("PUT", "/answers/dev_2", {"digest": "00" * 32, "digests": {"0": "00" * 32}, "signature": "00" * 64}),
        ("PUT", "/answers/dev_2/shares/0", None),
    ],
)
async def test_a_clerk_speaks_for_itself_alone(
    client: httpx.AsyncClient, platform: FakePlatform, method: str, path: str, body: object
) -> None:
    headers = bearer("device") | {"Coterie-Digest": "00" * 32}
    answer = await client.request(method, AT + path, json=body, headers=headers)
    assert (answer.status_code, answer.json()["reason"]) == (403, "not_yours")
    assert not [call for call in platform.calls if call.method.startswith("Put")]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/key-offers/dev_1", {"session_key": "AB" * 32, "signature": "00" * 64}),
        ("/key-offers/dev_1", {"session_key": "ab" * 31, "signature": "00" * 64}),
        ("/ready-checks/dev_1", {"candidates": "00" * 32, "ready": [], "faults": {"dev_2": "ugly"}}),
        ("/answers/dev_1", {"digest": "00" * 32, "digests": {"01": "00" * 32}, "signature": "00" * 64}),
        ("/answers/dev_1", {"digest": "00" * 32, "digests": {}, "signature": "00" * 64}),
    ],
)
async def test_what_is_no_key_no_fault_and_no_share_is_refused(
    client: httpx.AsyncClient, path: str, body: object
) -> None:
    answer = await client.put(AT + path, json=body, headers=bearer("device"))
    assert (answer.status_code, answer.json()["reason"]) == (400, "invalid_input")


async def test_a_sum_that_is_over_sends_the_device_back_to_ask_for_work(
    served: int, platform: FakePlatform, tmp_path: Path
) -> None:
    platform.replies["ReadSum"] = SumOver("over")
    with pytest.raises(RoundOver, match="over"):
        await as_device(served, tmp_path, lambda p: p.sum_terms(PLACE))


async def test_an_item_tells_its_terms_or_null(client: httpx.AsyncClient, platform: FakePlatform) -> None:
    items = [pb.WorkItem(sum='{"a":1}'), pb.WorkItem()]
    platform.replies["GetWork"] = pb.GetWorkReply(items=items)
    answer = await client.get("/v1/work", headers=bearer("device"))
    assert [item["sum"] for item in answer.json()["items"]] == ['{"a":1}', None]
