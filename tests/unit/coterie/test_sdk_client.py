"""The REST client: what it repeats, what it raises, how it moves large bodies."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.responses import Response

from coterie import errors
from coterie.agent.cache import BlobCache
from coterie.client import Platform
from coterie.protocol import transport
from coterie.protocol.transport import SENT_AGAIN, Backoff, Interrupted, Stop, retry_after
from tests.e2e.stand_in import StandIn, problem

MODEL = b"\x02\0\0\0\0\0\0\0{}"
QUICK = Backoff(first_seconds=0.01, most_seconds=0.02, patience_seconds=2.0)


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with StandIn(MODEL) as server:
        yield server


@pytest.fixture
def platform(stand_in: StandIn, tmp_path: Path) -> Iterator[Platform]:
    with Platform(stand_in.url, "ck_dev_1.x", cache=BlobCache(tmp_path), backoff=QUICK) as client:
        yield client


def test_every_named_reason_becomes_its_own_error() -> None:
    for reason, kind in errors.OF_REASON.items():
        result = errors.refusal(409, {"reason": reason, "detail": "why", "request_id": "r1", "details": {"a": "b"}})
        assert type(result) is kind
        assert (result.reason, str(result), result.request_id, result.details) == (reason, "why", "r1", {"a": "b"})


@pytest.mark.parametrize(("status", "kind"), [*errors.OF_STATUS.items(), (500, errors.Fault), (418, errors.Refused)])
def test_an_unknown_reason_falls_back_on_the_status(status: int, kind: type[errors.Refused]) -> None:
    assert type(errors.refusal(status, {"reason": "something_new"})) is kind


def test_the_error_tree_in_the_docstring_names_every_error() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__]
    assert errors.__doc__ is not None
    assert [kind.__name__ for kind in kinds if kind.__name__ not in errors.__doc__] == []


def test_a_refusal_is_raised_at_once_with_its_reason(platform: Platform, stand_in: StandIn) -> None:
    stand_in.faults["GET /v1/tasks/{task}"] = [problem(404, "unknown_task", "no such task")]
    with pytest.raises(errors.NotFound, match="no such task") as caught:
        platform.task("tsk_9")
    assert (caught.value.reason, caught.value.request_id) == ("unknown_task", "req")
    assert stand_in.answered("GET", "/v1/tasks/tsk_9") == 1


def test_a_503_is_asked_again_under_the_same_request_id(platform: Platform, stand_in: StandIn) -> None:
    stand_in.faults["GET /v1/tasks/{task}"] = [problem(503, "unavailable")] * 3
    assert platform.task("tsk_1").id == "tsk_1"
    ids = [headers["x-request-id"] for _, _, headers in stand_in.requests]
    assert len(ids) == 4
    assert len(set(ids)) == 1


UPDATE = "PUT /v1/tasks/{task}/rounds/{round:int}/updates/{device}"


def put(platform: Platform) -> str:
    return platform.put_update("tsk_1", 1, "dev_1", report='{"weight": 1}', body=MODEL).outcome


@pytest.mark.parametrize("reason", ["digest_mismatch", "body_cut_short"])
def test_a_body_that_was_spoilt_on_its_way_is_sent_again(platform: Platform, stand_in: StandIn, reason: str) -> None:
    stand_in.faults[UPDATE] = [problem(400, reason, "send it again")] * 3
    assert put(platform) == "accepted"
    assert stand_in.answered("PUT", "/v1/tasks/tsk_1/rounds/1/updates/dev_1") == 4


def test_a_body_that_is_wrong_where_it_comes_from_is_not_sent_for_ever(platform: Platform, stand_in: StandIn) -> None:
    stand_in.faults[UPDATE] = [problem(400, "digest_mismatch", "other bytes came")] * 20
    with pytest.raises(errors.DigestMismatch):
        put(platform)
    assert stand_in.answered("PUT", "/v1/tasks/tsk_1/rounds/1/updates/dev_1") == 1 + SENT_AGAIN


def test_an_answer_whose_json_was_damaged_is_asked_for_again(platform: Platform, stand_in: StandIn) -> None:
    stand_in.faults["GET /v1/tasks/{task}"] = [Response(b'{"id": "tsk_') for _ in range(2)]
    assert platform.task("tsk_1").id == "tsk_1"
    stand_in.faults["POST /v1/devices"] = [Response(b"\xff")]
    with pytest.raises(errors.Unreachable, match="cannot be read"):
        platform.request("POST", "/v1/devices", json={})


def test_a_503_to_a_call_that_must_not_be_repeated_is_raised(platform: Platform, stand_in: StandIn) -> None:
    stand_in.faults["POST /v1/devices"] = [problem(503, "unavailable", "later")] * 2
    with pytest.raises(errors.Fault, match="later"):
        platform.request("POST", "/v1/devices", json={"signing_key": "a", "name": "b"})
    assert stand_in.answered("POST", "/v1/devices") == 1


def test_registering_is_repeated_because_the_platform_makes_it_safe(platform: Platform, stand_in: StandIn) -> None:
    stand_in.faults["POST /v1/devices"] = [problem(503, "unavailable")]
    assert platform.register_device({"signing_key": "a", "name": "b"}).device.id == "dev_1"


def test_retry_after_is_obeyed_and_bounded() -> None:
    assert retry_after(_answer("2")) == 2.0
    assert retry_after(_answer("86400")) == 30.0
    assert retry_after(_answer("Wed, 21 Oct 2015 07:28:00 GMT")) == 0.0


def test_patience_ends_with_what_to_do() -> None:
    gone = Platform("http://127.0.0.1:9", backoff=Backoff(0.01, 0.01, patience_seconds=0.05))
    with gone, pytest.raises(errors.Unreachable, match="check the address"):
        gone.me()


def test_pauses_double_up_to_the_most_and_are_spread_by_the_jitter() -> None:
    low = Backoff(1.0, 4.0, jitter=lambda: 0.0).pauses()
    assert [next(low) for _ in range(4)] == [0.5, 1.0, 2.0, 2.0]
    high = Backoff(1.0, 4.0, jitter=lambda: 1.0).pauses()
    assert [next(high) for _ in range(4)] == [1.0, 2.0, 4.0, 4.0]


def test_stopping_ends_the_waiting() -> None:
    stop = Stop()
    stop.set()
    gone = Platform("http://127.0.0.1:9", backoff=Backoff(patience_seconds=float("inf")), stop=stop)
    with gone, pytest.raises(Interrupted):
        gone.me()


def test_a_model_is_downloaded_once_and_checked(platform: Platform, stand_in: StandIn) -> None:
    digest = hashlib.sha256(MODEL).hexdigest()
    assert platform.download_model(digest).read_bytes() == MODEL
    assert platform.download_model(digest).read_bytes() == MODEL
    assert stand_in.answered("GET", f"/v1/models/{digest}") == 1


def test_bytes_with_another_digest_are_never_kept(platform: Platform, stand_in: StandIn, tmp_path: Path) -> None:
    wanted = hashlib.sha256(b"other").hexdigest()
    stand_in.blobs[wanted] = MODEL
    with pytest.raises(errors.CorruptDownload):
        platform.download_model(wanted)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_cache_drops_what_was_used_longest_ago(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, most_bytes=25)
    digests: list[Path] = []
    for content in (b"a" * 10, b"b" * 10):
        digest = hashlib.sha256(content).hexdigest()
        path = cache.fetch(digest, lambda store, content=content: store([content]))  # type: ignore[misc]
        os.utime(path, (1000 + len(digests), 1000 + len(digests)))
        digests.append(path)
    third = b"c" * 10
    retained = cache.fetch(hashlib.sha256(third).hexdigest(), lambda store: store([third]))
    assert [path.exists() for path in (*digests, retained)] == [False, True, True]


def test_an_update_from_a_file_is_streamed_with_its_length(
    platform: Platform, stand_in: StandIn, tmp_path: Path
) -> None:
    body = tmp_path / "update.safetensors"
    body.write_bytes(MODEL)
    stand_in.faults["PUT /v1/tasks/{task}/rounds/{round:int}/updates/{device}"] = [problem(503, "unavailable")]
    stand_in.round = 5
    answer = platform.put_update("tsk_1", 1, "dev_1", report="{}", body=body)
    assert answer.outcome == "late"
    assert stand_in.updates[1, "dev_1"] == [MODEL]
    assert [headers["content-length"] for _, _, headers in stand_in.requests] == [str(len(MODEL))] * 2


def test_a_task_is_found_by_name_or_id(platform: Platform) -> None:
    assert platform.find_task("tiny").id == platform.find_task("tsk_1").id == "tsk_1"
    with pytest.raises(errors.NotFound, match="coterie task list"):
        platform.find_task("unknown")


def _answer(retry: str) -> httpx.Response:
    return httpx.Response(503, headers={"Retry-After": retry})


def test_question_on_connection_that_fell_silent_is_asked_again_on_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half open: the other end took the request and will never answer, while the connection stands."""
    monkeypatch.setattr(transport, "FIRST_ANSWER_SECONDS", 0.3)
    held: list[socket.socket] = []

    def serve(listener: socket.socket) -> None:
        held.append(listener.accept()[0])  # never answered
        held.append(listener.accept()[0])
        held[1].recv(65536)
        held[1].sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{"a": true}')

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,), daemon=True)
        server.start()
        client = transport.Transport(f"http://127.0.0.1:{listener.getsockname()[1]}", backoff=Backoff())
        assert client.send("GET", "/v1/me") == {"a": True}
        client.close()
        server.join()
    for connection in held:
        connection.close()


def test_state_changes_get_their_time_and_a_question_less_at_first() -> None:
    assert [transport.timeout_for(5.0, "GET", attempt).read for attempt in range(4)] == [13.0, 21.0, 35.0, 35.0]
    assert [transport.timeout_for(5.0, "PUT", attempt).read for attempt in range(2)] == [35.0, 35.0]
