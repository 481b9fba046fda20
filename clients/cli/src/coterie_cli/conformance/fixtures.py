"""Test data of a conformance run: the device under test, a task, a model, and the keys of simulated peers."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from coterie.protocol.keys import DeviceKeys, PublicKeys
from coterie.secure_sums.circle import invitation

DEVICE, OWNER = "dev_conformance", "own_conformance"
HEAD, STRANGER, ABSENT = "dev_conformance_head", "dev_conformance_stranger", "dev_conformance_other"
HEADER_ROOM_BYTES = 65_536
TRAINING = {"epochs": 1, "batch_size": 32, "learning_rate": 0.02, "clip_norm": 1.0}
PARAMETERS = {
    "privacy": {"noise_max": 1.0},
    "topology": {"loss_fit": [1.0, 1.0, 1.0, 1.0, 0.0], "non_iid": 0.1, "quality_offset": 2.0, "quality_slope": 1.0},
}


def digits_model() -> bytes:
    """Make a linear classifier of 8 × 8 pixels, far from zero so that a change of it cannot pass for a model."""
    random = np.random.default_rng(14)
    shapes = {"bias": (10,), "weight": (10, 64)}
    return save({name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()})


@dataclass(slots=True)
class Fixtures:
    """Data of one run; `device`, `name` and `samples` come from the device under test."""

    model: bytes = field(default_factory=digits_model)
    training: Mapping[str, Any] = field(default_factory=lambda: dict(TRAINING))
    token: str = field(default_factory=lambda: f"ct_conformance.{secrets.token_urlsafe(24)}")
    api_key: str = field(default_factory=lambda: f"ck_conformance.{secrets.token_urlsafe(24)}")
    head: DeviceKeys = field(default_factory=DeviceKeys.generate)
    others: Mapping[str, DeviceKeys] = field(
        default_factory=lambda: {name: DeviceKeys.generate() for name in (STRANGER, ABSENT)}
    )
    device: PublicKeys | None = None
    name: str = ""
    samples: int = 0

    @property
    def digest(self) -> str:
        """SHA-256 of the model."""
        return hashlib.sha256(self.model).hexdigest()

    @property
    def tensors(self) -> Mapping[str, np.ndarray[Any, Any]]:
        return dict(load(self.model))

    @property
    def invitation(self) -> str:
        """Invitation that the head's owner would give to the device's owner."""
        return invitation(HEAD, self.head.public().signing, "own_head")

    def registration_json(self) -> dict[str, Any]:
        """Return the response to a registration."""
        return {"device": self.device_json(DEVICE, self.device, self.name), "api_key": self.api_key}

    def device_json(self, device_id: str, keys: PublicKeys | None, name: str = "") -> dict[str, Any]:
        """Return a device as the platform describes it."""
        unset = {"kind": "", "brand": "", "model": "", "location": None, "capabilities": None, "token_id": ""}
        return {
            **unset,
            "id": device_id,
            "owner_id": OWNER,
            "name": name or device_id,
            "signing_key": _text(b"" if keys is None else keys.signing),
            "sealing_key": _text(b"" if keys is None else keys.sealing),
            "state": "active",
            "registered_at": time.time(),
            "last_seen_at": time.time(),
            "key_version": 1,
        }

    def task(self, group: str, privacy: str, topology: str, rounds: int) -> dict[str, Any]:
        """Return the task of one group."""
        specification = {
            "name": task_name(group), "preset": "", "topology": topology, "privacy": privacy, "incentive": "none",
            "model_digests": [self.digest], "rounds": rounds, "min_devices": 1, "quorum": 1.0, "round_seconds": 600.0,
            "max_attempts": 1, "max_devices": 0, "training": dict(self.training), "parameters": {},
            "escrow_microcredits": 0, "seed": 1, "privacy_unit": "device", "auto_start": True,
            "description": "a device under test", "rule": "mean", "join_by": "open", "invited": [],
            "mode": "synchronous", "keep_rounds": 0,
        }  # fmt: skip
        return {
            "id": task_id(group), "publisher": "pub_conformance", "specification": specification, "state": "running",
            "reason": "", "round": 1, "enrolled": 1, "created_at": time.time(), "started_at": time.time(),
            "ended_at": 0.0, "model_digests": [self.digest], "last_event": 0,
        }  # fmt: skip

    def work(self, group: str, number: int, **changes: Any) -> dict[str, Any]:
        """Return a work item, with a field from a later version."""
        item = {
            "task_id": task_id(group), "round": number, "attempt": 1, "role": "solo", "model_digests": [self.digest],
            "model_lines": [0], "previous_digests": [], "deadline_at": time.time() + 600.0, "plan_version": number,
            "noise_multiplier": 0.0, "noised": False, "batch_size": 0, "self_weight": 1.0, "peers": [],
            "price_microcredits": 0, "external_risk": 0.0, "base_microcredits": 0, "slope_microcredits": 0,
            "training": dict(self.training), "parameters": PARAMETERS, "privacy_unit": "device", "topology": "star",
            "privacy": "none", "incentive": "none", "max_update_bytes": len(self.model) + HEADER_ROOM_BYTES,
            "rounds": 100, "verdict": "", "trust_weight": 1.0, "sum": None, "measure": None,
            "of_a_later_version": {"unknown": [1, 2]},
        }  # fmt: skip
        return item | changes

    def peer(self, device_id: str, role: str, keys: PublicKeys, **changes: Any) -> dict[str, Any]:
        """Return a peer to exchange letters with."""
        own_keys = {"signing_key": _text(keys.signing), "sealing_key": _text(keys.sealing)}
        rest = {"weight": 1.0, "trusted": False, "link_seconds": 0.0}
        return {"device_id": device_id, "role": role, **own_keys, **rest, **changes}


def task_id(group: str) -> str:
    """Return the id of a group's task."""
    return f"tsk_conformance_{group}"


def task_name(group: str) -> str:
    """Return the name by which a device joins the task of a group."""
    return f"conformance-{group}"


def canonical(document: Any) -> str:
    """JSON with sorted keys, for comparing."""
    return json.dumps(document, sort_keys=True)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
