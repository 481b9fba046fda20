"""Wrong uploads over real processes: each is answered with a clear 4xx and changes nothing."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import load, save

from coterie.agent.home import DeviceIdentity
from coterie.records import RoundDetail
from tests.e2e.device_group import DeviceGroup
from tests.e2e.real_platform import SHAPES, RealPlatform, model

REPORT = json.dumps({"form": "mean", "weight": 10})


def update(value: float = 1.0, **others: Any) -> bytes:
    """An update that fits the tests' model, but for `others`."""
    return save({name: np.full(shape, value, np.float32) for name, shape in SHAPES.items()} | others)


class Round:
    """An open round of two devices that have not delivered yet."""

    def __init__(self, platform: RealPlatform) -> None:
        self.platform = platform
        self.device_group = DeviceGroup(platform, ("gail", "hank", "mallory"))
        self.task = self.device_group.publish(min_devices=2, rounds=1)
        self.gail, self.hank, self.mallory = (self._identity(name) for name in ("gail", "hank", "mallory"))
        for identity in (self.gail, self.hank):
            with platform.as_device(self.device_group.homes[identity.name]) as device:
                device.enrol(self.task, identity.id, samples=10)
        platform.wait_until(lambda: platform.admin.task(self.task).round == 1)
        platform.wait_until(lambda: self.state().round.state == "open")

    def _identity(self, name: str) -> DeviceIdentity:
        identity = self.device_group.homes[name].identity()
        assert identity is not None
        return identity

    def state(self) -> RoundDetail:
        """The round as the admin sees it, but for the notes."""
        result = self.platform.admin.round(self.task, 1)
        return replace(result, participations=tuple(replace(part, note="") for part in result.participations))

    def put(
        self,
        body: bytes,
        headers: dict[str, str] | None = None,
        *,
        sender: DeviceIdentity | None = None,
        device: str = "",
        number: int = 1,
    ) -> httpx.Response:
        """An update as it goes over the wire."""
        sender = sender or self.gail
        given = {
            "Authorization": f"Bearer {sender.api_key}",
            "Coterie-Digest": hashlib.sha256(body).hexdigest(),
            "Coterie-Update": REPORT,
        }
        path = f"/v1/tasks/{self.task}/rounds/{number}/updates/{device or sender.id}"
        url = self.platform.processes.url + path
        return httpx.put(url, content=body, headers=given | (headers or {}), timeout=30.0, trust_env=False)


@pytest.fixture(scope="module")
def opened(shared_platform: RealPlatform) -> Iterator[Round]:
    """A round, unchanged by every test; at the end both devices deliver and the model is the average."""
    result = Round(shared_platform)
    yield result
    assert result.put(update(1.0)).json()["outcome"] == "accepted"
    assert result.put(update(3.0), sender=result.hank).json()["outcome"] == "accepted"
    final = load(shared_platform.final_model(result.task))
    assert all(np.array_equal(value, np.full_like(value, 2.0)) for value in final.values())


def check(opened: Round, answer: httpx.Response, status: int, reason: str) -> None:
    """The answer is a clear refusal; `opened` is as it was."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["reason"] == reason
    assert len(problem["detail"]) > 10
    assert problem["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        pytest.param(update()[:-3], 400, "bad_update", id="truncated file"),
        pytest.param(b"not safetensors at all", 400, "bad_update", id="no safetensors"),
        pytest.param(update(bias=np.zeros(6, np.float32)), 400, "bad_update", id="wrong shape"),
        pytest.param(update(bias=np.zeros(5, np.float64)), 400, "bad_update", id="wrong dtype"),
        pytest.param(update(more=np.zeros(5, np.float32)), 400, "bad_update", id="tensor too many"),
        pytest.param(save({"bias": np.zeros(5, np.float32)}), 400, "bad_update", id="tensor missing"),
        pytest.param(update(float("nan")), 400, "bad_update", id="NaN"),
        pytest.param(update(float("inf")), 400, "bad_update", id="infinity"),
        pytest.param(update(more=np.zeros(200_000, np.float32)), 413, "update_too_large", id="10 times too large"),
    ],
)
def test_an_unfit_body_is_refused_and_nothing_changes(opened: Round, body: bytes, status: int, reason: str) -> None:
    before = opened.state()
    check(opened, opened.put(body), status, reason)
    assert opened.state() == before


def test_a_wrong_digest_is_refused(opened: Round) -> None:
    before = opened.state()
    check(opened, opened.put(update(), {"Coterie-Digest": "0" * 64}), 400, "digest_mismatch")
    assert opened.state() == before


def test_a_body_cut_short_on_the_wire_changes_nothing(opened: Round) -> None:
    before, body = opened.state(), update()
    host, port = "127.0.0.1", opened.platform.processes.ports["gateway"]
    head = (
        f"PUT /v1/tasks/{opened.task}/rounds/1/updates/{opened.gail.id} HTTP/1.1\r\nHost: {host}\r\n"
        f"Authorization: Bearer {opened.gail.api_key}\r\nCoterie-Digest: {hashlib.sha256(body).hexdigest()}\r\n"
        f"Coterie-Update: {REPORT}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((host, port)) as wire:
        wire.sendall(head.encode() + body[: len(body) // 2])
        wire.shutdown(socket.SHUT_WR)
        wire.settimeout(10)
        answer = wire.recv(4096)
    assert answer == b"" or b" 400 " in answer.split(b"\r\n")[0]
    assert opened.state() == before


def test_a_round_the_device_has_no_part_in_is_refused(opened: Round) -> None:
    before = opened.state()
    check(opened, opened.put(update(), sender=opened.mallory), 409, "not_in_round")
    check(opened, opened.put(update(), number=2), 409, "not_in_round")
    assert opened.state() == before


def test_a_forged_device_id_is_refused(opened: Round) -> None:
    before = opened.state()
    check(opened, opened.put(update(), sender=opened.mallory, device=opened.hank.id), 403, "not_yours")
    assert opened.state() == before


def test_a_weight_above_the_samples_enrolled_is_refused(opened: Round) -> None:
    before = opened.state()
    heavy = json.dumps({"form": "mean", "weight": 1000})
    check(opened, opened.put(update(), {"Coterie-Update": heavy}), 400, "bad_update")
    assert opened.state() == before


def test_a_revoked_key_opens_nothing(opened: Round) -> None:
    [revoked] = opened.platform.register("trent").values()
    identity = revoked.identity()
    assert identity is not None
    before = opened.state()
    opened.platform.admin.revoke_device(identity.id, "lost on the train")
    check(opened, opened.put(update(), sender=identity), 401, "invalid_api_key")
    check(opened, opened.put(update(), {"Authorization": "Bearer nonsense"}), 401, "invalid_api_key")
    check(opened, opened.put(update(), {"Authorization": ""}), 401, "missing_key")
    assert opened.state() == before


@pytest.mark.parametrize("preset", ["clusters", "multitask", "fedavg"])
def test_sampling_rate_for_privacy_amplification_is_refused(shared_platform: RealPlatform, preset: str) -> None:
    """[SCFL] (10) assumes that the participants of a round are secret; here the platform knows them."""
    admin = shared_platform.admin
    body = {
        "name": f"sampled {preset}",
        "preset": preset,
        "model_digests": [admin.upload_model(model())],
        "parameters": {"privacy": {"sampling_rate": 0.1}},
    }
    key = {"Authorization": f"Bearer {shared_platform.processes.admin_key()}"}
    url = f"{shared_platform.processes.url}/v1/tasks"
    refused = httpx.post(url, json=body, headers=key, timeout=30.0, trust_env=False)
    assert refused.status_code == 400
    detail = refused.json()["detail"]
    assert detail.startswith("parameters.privacy.sampling_rate: ")
    assert "no such parameter" in detail
