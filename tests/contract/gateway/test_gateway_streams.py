"""Bodies over a real socket: updates, letters, models; cut short, changed, too large, repeated."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import REGISTRY

from coterie_api.aggregation.v1 import aggregation_pb2
from coterie_api.enums.v1 import enums_pb2 as words
from services.gateway.wire.bodies import SMALL_BYTES
from services.kit.errors import Conflict
from tests.contract.gateway.conftest import bearer
from tests.contract.gateway.fakes import FakePlatform

UPDATE = "/v1/tasks/tsk_1/rounds/2/updates/dev_1"
SMALL, LARGE = b"small update", bytes(range(256)) * 2048


class WrongRound(Conflict):
    """As aggregation says it."""


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _headers(body: bytes, **report: object) -> dict[str, str]:
    return bearer("device") | {"Coterie-Digest": _digest(body), "Coterie-Update": json.dumps(report)}


def _stored(folder: Path) -> set[str]:
    """Digests in the blob store, and whatever lies in staging."""
    return {path.name for path in (folder / "blobs").rglob("*") if path.is_file()}


@pytest.fixture
async def online(served: int) -> AsyncIterator[httpx.AsyncClient]:
    """A client over a real connection."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{served}", timeout=20) as client:
        yield client


@pytest.fixture(autouse=True)
def _admit(platform: FakePlatform) -> None:
    platform.replies["AdmitUpdate"] = aggregation_pb2.AdmitUpdateReply(max_bytes=1 << 30)
    platform.replies["SubmitUpdate"] = aggregation_pb2.SubmitUpdateReply(outcome=words.RECEPTION_ACCEPTED, round=2)


async def test_a_small_update_is_stored_and_submitted_in_one_call(
    online: httpx.AsyncClient, platform: FakePlatform, tmp_path: Path
) -> None:
    report = {
        "form": "sum",
        "weight": 12.5,
        "metrics": {"loss": 0.5},
        "model_index": 1,
        "budget": 0.1,
        "privacy": [{"mechanism": "zcdp", "parameter": 0.1, "unit": "example", "steps": 2}],
        "members": [{"device_id": "dev_7", "outcome": "dropped"}],
    }
    answer = await online.put(UPDATE, headers=_headers(SMALL, **report), content=SMALL)
    assert (answer.status_code, answer.json()) == (200, {"outcome": "accepted", "round": 2})
    assert _stored(tmp_path) == {_digest(SMALL)}
    assert platform.called("AdmitUpdate") == []
    (call,) = platform.called("SubmitUpdate")
    sent = call.request
    assert (sent.task_id, sent.round, sent.device_id) == ("tsk_1", 2, "dev_1")
    assert (sent.digest, sent.size_bytes, sent.form, sent.weight) == (_digest(SMALL), len(SMALL), words.FORM_SUM, 12.5)
    assert (dict(sent.metrics), sent.model_index, sent.budget) == ({"loss": 0.5}, 1, 0.1)
    assert (sent.privacy[0].mechanism, sent.privacy[0].steps, sent.members[0].outcome) == (
        words.PRIVACY_MECHANISM_ZCDP,
        2,
        words.PARTICIPATION_STATE_DROPPED,
    )


@pytest.mark.parametrize("known_length", [True, False])
async def test_a_large_update_is_admitted_before_its_body_is_read(
    online: httpx.AsyncClient, platform: FakePlatform, tmp_path: Path, known_length: bool
) -> None:
    assert len(LARGE) > SMALL_BYTES

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(LARGE), 100_000):
            yield LARGE[start : start + 100_000]

    content = LARGE if known_length else pieces()
    answer = await online.put(UPDATE, headers=_headers(LARGE), content=content)
    assert answer.status_code == 200
    assert [call.method for call in platform.calls if "Update" in call.method] == ["AdmitUpdate", "SubmitUpdate"]
    assert platform.called("AdmitUpdate")[0].request.size_bytes == (len(LARGE) if known_length else 0)
    assert platform.called("SubmitUpdate")[0].request.size_bytes == len(LARGE)
    assert _stored(tmp_path) == {_digest(LARGE)}


async def test_a_large_update_that_would_not_be_taken_is_refused_unread(
    online: httpx.AsyncClient, platform: FakePlatform, tmp_path: Path
) -> None:
    platform.replies["AdmitUpdate"] = WrongRound("round 2 is over; ask for work")
    answer = await online.put(UPDATE, headers=_headers(LARGE), content=LARGE)
    assert (answer.status_code, answer.json()["reason"]) == (409, "wrong_round")
    assert _stored(tmp_path) == set()
    assert platform.called("SubmitUpdate") == []


async def test_an_update_that_is_stored_already_is_not_read_again(
    online: httpx.AsyncClient, platform: FakePlatform, tmp_path: Path
) -> None:
    platform.replies["AdmitUpdate"] = aggregation_pb2.AdmitUpdateReply(max_bytes=1 << 30, stored=True)
    platform.replies["SubmitUpdate"] = aggregation_pb2.SubmitUpdateReply(outcome=words.RECEPTION_REPEATED, round=3)
    answer = await online.put(UPDATE, headers=_headers(LARGE), content=LARGE)
    assert answer.json() == {"outcome": "repeated", "round": 3}
    assert platform.called("SubmitUpdate")[0].request.size_bytes == len(LARGE)
    assert _stored(tmp_path) == set()


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"Coterie-Digest": ""}, "bad_header"),
        ({"Coterie-Digest": "abc"}, "bad_digest"),
        ({"Coterie-Digest": "A" * 64}, "bad_digest"),
        ({"Coterie-Digest": "0" * 64}, "digest_mismatch"),
        ({"Coterie-Update": "{"}, "bad_header"),
        ({"Coterie-Update": "[]"}, "bad_header"),
        ({"Coterie-Update": '{"form": "pickle"}'}, "bad_header"),
        ({"Coterie-Update": '{"weight": -1}'}, "bad_header"),
        ({"Coterie-Update": '{"weight": NaN}'}, "bad_header"),
        ({"Coterie-Update": '{"metrics": {"loss": Infinity}}'}, "bad_header"),
        ({"Coterie-Update": '{"extra": 1}'}, "bad_header"),
        ({"Coterie-Update": json.dumps({"metrics": {str(n): n for n in range(33)}})}, "bad_header"),
        ({"Coterie-Update": json.dumps({"form": "mean", "note": "x" * 33_000})}, "bad_header"),
    ],
)
async def test_a_bad_head_is_400_and_nothing_changes(
    online: httpx.AsyncClient, platform: FakePlatform, tmp_path: Path, headers: dict[str, str], reason: str
) -> None:
    answer = await online.put(UPDATE, headers=_headers(SMALL) | headers, content=SMALL)
    assert (answer.status_code, answer.json()["reason"]) == (400, reason), answer.text
    assert _stored(tmp_path) == set()
    assert platform.called("SubmitUpdate") == []


async def test_a_report_needs_neither_body_nor_digest(
    online: httpx.AsyncClient, platform: FakePlatform, tmp_path: Path
) -> None:
    headers = bearer("device") | {"Coterie-Update": '{"form": "report", "metrics": {"accuracy": 0.9}}'}
    assert (await online.put(UPDATE, headers=headers)).status_code == 200
    sent = platform.called("SubmitUpdate")[0].request
    assert (sent.form, sent.digest, sent.size_bytes) == (words.FORM_REPORT, "", 0)
    assert _stored(tmp_path) == set()


async def test_an_update_over_the_limit_is_413_whether_it_says_so_or_not(
    online: httpx.AsyncClient, platform: FakePlatform, tmp_path: Path
) -> None:
    body = b"x" * (9 << 20)
    honest = await online.put(UPDATE, headers=_headers(body), content=body)
    assert (honest.status_code, honest.json()["reason"]) == (413, "body_too_large")
    platform.replies["AdmitUpdate"] = aggregation_pb2.AdmitUpdateReply(max_bytes=1 << 20)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b"y" * 65_536

    sly = await online.put(UPDATE, headers=_headers(b"y" * 65_536 * 30), content=pieces())
    assert (sly.status_code, sly.json()["reason"]) == (413, "blob_too_large")
    assert _stored(tmp_path) == set()
    assert platform.called("SubmitUpdate") == []


def _refused_updates() -> float:
    route = "/v1/tasks/{task_id}/rounds/{number}/updates/{device_id}"
    labels = {"method": "PUT", "route": route, "status": "400"}
    return REGISTRY.get_sample_value("coterie_http_total", labels) or 0.0


async def test_a_body_cut_short_changes_nothing(served: int, platform: FakePlatform, tmp_path: Path) -> None:
    before = _refused_updates()
    head = [f"PUT {UPDATE} HTTP/1.1", "Host: gateway", f"Content-Length: {len(LARGE)}"]
    head += [f"{name}: {value}" for name, value in _headers(LARGE).items()]
    reader, writer = await asyncio.open_connection("127.0.0.1", served)
    writer.write(("\r\n".join(head) + "\r\n\r\n").encode() + LARGE[:300_000])
    await writer.drain()
    while not platform.called("AdmitUpdate"):  # noqa: ASYNC110 - until the gateway is at the body
        await asyncio.sleep(0.01)
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    async with asyncio.timeout(10):
        while _refused_updates() == before:  # noqa: ASYNC110 - a counter, not an event
            await asyncio.sleep(0.01)
    assert _stored(tmp_path) == set()
    assert platform.called("SubmitUpdate") == []


async def test_a_letter_is_stored_under_the_callers_name(
    online: httpx.AsyncClient, platform: FakePlatform, tmp_path: Path
) -> None:
    headers = bearer("device") | {"Coterie-Digest": _digest(SMALL)}
    path = "/v1/tasks/tsk_1/rounds/1/letters/dev_2?kind=update&plan_version=4"
    assert (await online.put(path, headers=headers, content=SMALL)).status_code == 200
    letter = platform.called("SendLetter")[0].request.letter
    assert (letter.sender, letter.recipient, letter.kind, letter.plan_version) == (
        "dev_1",
        "dev_2",
        words.LETTER_KIND_UPDATE,
        4,
    )
    assert (letter.digest, letter.size_bytes) == (_digest(SMALL), len(SMALL))
    assert _stored(tmp_path) == {_digest(SMALL)}
    cut = await online.put(path, headers=headers, content=SMALL[:-1])
    assert (cut.status_code, cut.json()["reason"]) == (400, "digest_mismatch")
    assert len(platform.called("SendLetter")) == 1


async def test_a_model_goes_up_and_comes_down_whole_in_part_or_not_at_all(
    online: httpx.AsyncClient, platform: FakePlatform
) -> None:
    digest = _digest(LARGE)
    platform.replies["AdmitModel"] = aggregation_pb2.AdmitModelReply(max_bytes=1 << 30)
    up = await online.post("/v1/models", headers=bearer("publisher"), content=LARGE)
    assert up.status_code == 201
    assert platform.called("RegisterModel")[0].request.digest == digest
    platform.replies["AuthoriseDownload"] = aggregation_pb2.AuthoriseDownloadReply(digest=digest, size_bytes=len(LARGE))
    path, key = f"/v1/models/{digest}", bearer("device")
    whole = await online.get(path, headers=key)
    assert (whole.status_code, whole.content) == (200, LARGE)
    assert (whole.headers["content-length"], whole.headers["etag"]) == (str(len(LARGE)), f'"{digest}"')
    have = await online.get(path, headers=key | {"If-None-Match": f'W/"{digest}"'})
    assert (have.status_code, have.content) == (304, b"")
    part = await online.get(path, headers=key | {"Range": "bytes=1000-1999"})
    assert (part.status_code, part.content) == (206, LARGE[1000:2000])
    assert part.headers["content-range"] == f"bytes 1000-1999/{len(LARGE)}"
    rest = await online.get(path, headers=key | {"Range": f"bytes={len(LARGE) - 5}-"})
    assert rest.content == LARGE[-5:]
    none = await online.get(path, headers=key | {"Range": f"bytes={len(LARGE)}-"})
    assert (none.status_code, none.json()["reason"]) == (416, "bad_range")


async def test_a_model_that_should_be_there_and_is_not_is_a_clean_404(
    online: httpx.AsyncClient, platform: FakePlatform
) -> None:
    platform.replies["AuthoriseDownload"] = aggregation_pb2.AuthoriseDownloadReply(digest="0" * 64, size_bytes=9)
    answer = await online.get("/v1/letters/let_1", headers=bearer("device"))
    assert (answer.status_code, answer.json()["reason"]) == (404, "unknown_blob")


async def test_stopping_the_gateway_answers_those_who_wait(
    online: httpx.AsyncClient, platform: FakePlatform, app_stopper: asyncio.Event
) -> None:
    async def never(_: object) -> aggregation_pb2.GetWorkReply:
        app_stopper.set()
        await asyncio.sleep(60)
        raise AssertionError("the call should have been cancelled")

    platform.replies["GetWork"] = never
    waiting = asyncio.create_task(online.get("/v1/work?wait=30", headers=bearer("device")))
    answer = await asyncio.wait_for(waiting, 5)
    assert (answer.status_code, answer.json()["reason"]) == (503, "stopping")
