"""A small device of plain httpx for `coterie conformance`, correct except for the faults that $FAULTS name."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from coterie.protocol.keys import DeviceKeys

FAULTS = frozenset(os.environ["FAULTS"].split())
TRY_LATER = (429, 502, 503, 504)


class Undoable(Exception):
    """The device cannot do this work."""


def ask(client: httpx.Client, method: str, path: str, **options: Any) -> httpx.Response:
    while True:
        try:
            answer = client.request(method, path, **options)
        except httpx.TransportError:
            time.sleep(0.1)
            continue
        if answer.status_code not in TRY_LATER:
            return answer
        hurries = "hurries" in FAULTS and method == "GET"
        time.sleep(0.05 if hurries else float(answer.headers.get("retry-after", 1)))


def register(home: Path, url: str) -> tuple[str, str]:
    home.mkdir(parents=True, exist_ok=True)
    note, keys = home / "device.json", DeviceKeys.load_or_create(home / "keys.json")
    if not note.exists():
        public = keys.public()
        proof = keys.sign(b"something else" if "no-proof" in FAULTS else public.sealing)
        texts = {"signing_key": public.signing, "sealing_key": public.sealing, "proof": proof}
        body = {name: base64.b64encode(value).decode() for name, value in texts.items()}
        with httpx.Client(base_url=url, timeout=60) as client:
            about = {"token": os.environ["COTERIE_TOKEN"], "name": os.environ["COTERIE_NAME"]}
            answer = ask(client, "POST", "/v1/devices", json=body | about)
        answer.raise_for_status()
        note.write_text(json.dumps([answer.json()["device"]["id"], answer.json()["api_key"]]))
    device, key = json.loads(note.read_text())
    return device, key


def model(client: httpx.Client, item: dict[str, Any]) -> bytes:
    """The model's bytes, or `Undoable`."""
    digest, most = item["model_digests"][0], item["max_update_bytes"]
    for _ in range(3):
        content = bytearray()
        try:
            with client.stream("GET", f"/v1/models/{digest}") as answer:
                if not answer.is_success:
                    raise Undoable
                for piece in answer.iter_bytes(1 << 16):
                    content += piece
                    if len(content) > most and "reads-everything" not in FAULTS:
                        raise Undoable
        except httpx.TransportError:
            continue
        if hashlib.sha256(content).hexdigest() == digest or "believes-digests" in FAULTS:
            return bytes(content)
        raise Undoable
    raise Undoable


def update(client: httpx.Client, item: dict[str, Any], round_file: Path) -> bytes:
    """Return the update: made once and stored."""
    if round_file.exists() and "draws-again" not in FAULTS:
        return round_file.read_bytes()
    try:
        before = load(model(client, item))
    except SafetensorError as error:
        raise Undoable from error
    random = np.random.default_rng()
    change = {name: (0.01 * random.normal(size=value.shape)).astype(value.dtype) for name, value in before.items()}
    if "sends-the-model" in FAULTS:
        change = {name: before[name] + change[name] for name in change}
    round_file.write_bytes(save(change))
    return round_file.read_bytes()


def work(client: httpx.Client, home: Path, device: str, item: dict[str, Any]) -> None:
    place = f"/v1/tasks/{item['task_id']}/rounds/{item['round']}"
    known = (item["topology"], item["privacy"], item["sum"]) == ("star", "none", None) or "downgrades" in FAULTS
    try:
        if not known or item["training"].get("epochs", 1) > 1000:
            raise Undoable
        body = update(client, item, home / f"{item['task_id']}.{item['round']}.safetensors")
    except Undoable:
        ask(client, "POST", f"{place}/decline", json={"why": "this device cannot do that"})
        return
    claim = {"mechanism": "raw", "parameter": 0, "unit": "device", "adjacency": "replaced"}
    report = json.dumps({"form": "mean", "weight": 5, "metrics": {}, "privacy": [claim]})
    headers = {"Coterie-Digest": hashlib.sha256(body).hexdigest(), "Coterie-Update": report}
    answer = ask(client, "PUT", f"{place}/updates/{device}", content=body, headers=headers)
    if answer.status_code == 400:
        ask(client, "POST", f"{place}/decline", json={"why": "it was refused"})


def main() -> None:
    """Run one group of cases."""
    home, url = Path(os.environ["COTERIE_HOME"]), os.environ["COTERIE_URL"]
    device, key = register(home, url)
    headers, follows = {"Authorization": f"Bearer {key}"}, "follows-redirects" in FAULTS
    with httpx.Client(base_url=url, headers=headers, timeout=60, follow_redirects=follows) as client:
        if follows:  # httpx removes the key on a redirect to another host
            client._redirect_headers = lambda request, *_: request.headers  # type: ignore[method-assign]
        result = ask(client, "GET", "/v1/tasks", params={"name": os.environ["COTERIE_TASK"]}).json()["items"][0]
        ask(client, "PUT", f"/v1/tasks/{result['id']}/enrolments/{device}", json={"samples": 5}).raise_for_status()
        while True:
            answer = ask(client, "GET", "/v1/work", params={"wait": 5, "task": result["id"]})
            try:
                payload = answer.json()
            except ValueError:
                continue
            if not answer.is_success:
                continue
            if result["id"] in payload["ended"]:
                return
            for item in payload["items"]:
                if item["task_id"] == result["id"]:
                    work(client, home, device, item)
            time.sleep(0.05)


if __name__ == "__main__":
    main()
