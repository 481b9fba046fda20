"""Schemathesis over the whole OpenAPI document before the real services: no request is answered with 5xx."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import schemathesis
from nacl.signing import SigningKey

from tests.contract.gateway.fuzzing import bounded, document, exercise, operation_name

START_SECONDS = 90.0
ENDING = {"revoke_device", "erase_device", "cancel_task", "revoke_key"}
"""Routes that would take away what the others need; they get made-up ids."""
_schema = document()


@dataclass(frozen=True, slots=True)
class Whole:
    """A running platform, a caller of each role, and existing objects."""

    url: str
    keys: dict[str, str]
    ids: dict[str, str]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    """All five processes, the gateway on a free port."""
    folder = tmp_path_factory.mktemp("whole")
    services = ("trust", "topology", "pricing", "aggregation", "gateway")
    port = _free_port()
    environment = os.environ | {"COTERIE_DATA_DIR": str(folder), "COTERIE_GATEWAY_PORT": str(port)}
    log = (folder / "log").open("wb")
    processes = [
        subprocess.Popen([sys.executable, "-m", f"services.{name}"], env=environment, stderr=log) for name in services
    ]
    try:
        url = f"http://127.0.0.1:{port}"
        _await_ready(url)
        yield _settle(url, (folder / "admin.key").read_text().strip())
    finally:
        for process in processes:
            process.terminate()
        codes = [process.wait(30) for process in processes]
        log.close()
    assert codes == [0] * len(codes)
    faults = [line for line in (folder / "log").read_text().splitlines() if '"level": "error"' in line]
    assert faults == []


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_ready(url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    answer = "nothing"
    while time.monotonic() < deadline:
        try:
            reply = httpx.get(f"{url}/health/ready")
            if reply.status_code == 200:
                return
            answer = reply.text
        except httpx.TransportError as error:
            answer = repr(error)
        time.sleep(0.1)
    raise TimeoutError(f"the platform was not ready within {START_SECONDS:g} s: {answer}")


def _settle(url: str, admin_key: str) -> Whole:
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {admin_key}"}, timeout=30) as admin:

        def post(path: str, body: dict[str, object]) -> Any:
            return admin.post(path, json=body).raise_for_status().json()

        publisher = post("/v1/keys", {"role": "publisher", "name": "hospital"})
        owner = post("/v1/owners", {"name": "Ada"})["id"]
        token = post(f"/v1/owners/{owner}/tokens", {})["token"]
        signing = SigningKey.generate()
        sealing = bytes(signing.to_curve25519_private_key().public_key)
        body = {"token": token, "name": "phone"} | {
            name: base64.b64encode(value).decode()
            for name, value in (
                ("signing_key", bytes(signing.verify_key)),
                ("sealing_key", sealing),
                ("proof", signing.sign(sealing).signature),
            )
        }
        device = post("/v1/devices", body)
    keys = {"admin": admin_key, "publisher": publisher["api_key"], "device": device["api_key"]}
    device_id = device["device"]["id"]
    ids = {"owner_id": owner, "device_id": device_id, "a": device_id, "b": device_id, "recipient": device_id}
    return Whole(url, keys, ids | {"account_id": f"device:{device_id}", "publisher": publisher["principal"]["subject"]})


@pytest.mark.slow
@_schema.parametrize()
@bounded
def test_no_request_makes_a_service_fail(case: schemathesis.Case[Any], whole: Whole) -> None:
    ids = {} if operation_name(case) in ENDING else whole.ids
    exercise(case, whole.url, whole.keys, ids)
