"""What the played platform knows: the device under test, a task, a model, and the keys of devices it invents."""

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
    """A linear classifier of 8 × 8 pixels into ten classes, far from zero: a change of it is no model, and shows."""
    random = np.random.default_rng(14)
    shapes = {"bias": (10,), "weight": (10, 64)}
    return save({name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()})


@dataclass(slots=True)
class Scene:
    """One run against one device; `device` and `samples` are what it said of itself."""

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
        """The model's."""
        return hashlib.sha256(self.model).hexdigest()

    @property
    def tensors(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """The model's tensors."""
        return dict(load(self.model))

    @property
    def invitation(self) -> str:
        """What the device's owner would get from the owner of the head, not from the platform."""
        return invitation(HEAD, self.head.public().signing, "own_head")

    def registered(self) -> dict[str, Any]:
        """The answer to registering."""
        return {"device": self.told_of(DEVICE, self.device, self.name), "api_key": self.api_key}

    def told_of(self, device_id: str, keys: PublicKeys | None, name: str = "") -> dict[str, Any]:
        """A device as the platform shows it."""
        nothing = {"kind": "", "brand": "", "model": "", "location": None, "capabilities": None, "token_id": ""}
        return {
            **nothing,
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

    def task(self, part: str, privacy: str, topology: str, rounds: int) -> dict[str, Any]:
        """The task of one part."""
        specification = {
            "name": task_name(part), "preset": "", "topology": topology, "privacy": privacy, "incentive": "none",
            "model_digests": [self.digest], "rounds": rounds, "min_devices": 1, "quorum": 1.0, "round_seconds": 600.0,
            "max_attempts": 1, "max_devices": 0, "training": dict(self.training), "parameters": {},
            "escrow_microcredits": 0, "seed": 1, "privacy_unit": "device", "auto_start": True,
            "description": "a device under test", "rule": "mean", "join_by": "open", "invited": [],
            "mode": "synchronous", "keep_rounds": 0,
        }  # fmt: skip
        return {
            "id": task_id(part), "publisher": "pub_conformance", "specification": specification, "state": "running",
            "reason": "", "round": 1, "enrolled": 1, "created_at": time.time(), "started_at": time.time(),
            "ended_at": 0.0, "model_digests": [self.digest], "last_event": 0,
        }  # fmt: skip

    def work(self, part: str, number: int, **changes: Any) -> dict[str, Any]:
        """A work item, with a field that no device knows."""
        item = {
            "task_id": task_id(part), "round": number, "attempt": 1, "role": "solo", "model_digests": [self.digest],
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
        """Somebody to exchange letters with."""
        shown = {"signing_key": _text(keys.signing), "sealing_key": _text(keys.sealing)}
        rest = {"weight": 1.0, "trusted": False, "link_seconds": 0.0}
        return {"device_id": device_id, "role": role, **shown, **rest, **changes}


def task_id(part: str) -> str:
    """The id of a part's task."""
    return f"tsk_conformance_{part}"


def task_name(part: str) -> str:
    """The name a device joins it by."""
    return f"conformance-{part}"


def canonical(document: Any) -> str:
    """JSON with sorted keys, for comparing."""
    return json.dumps(document, sort_keys=True)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
