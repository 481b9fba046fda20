"""Registration: a device gets its identity once, with an enrolment token; afterwards its folder is enough."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coterie.agent.home import DeviceHome, DeviceIdentity
from coterie.client import Platform
from coterie.errors import BadHome
from coterie.protocol.keys import DeviceKeys


def register_device(
    home: DeviceHome,
    url: str,
    token: str = "",
    *,
    name: str = "",
    profile: Mapping[str, Any] | None = None,
    verify: bool | str = True,
) -> DeviceIdentity:
    """The device's identity, from its folder or else from the platform; safe to repeat after a crash anywhere.

    Keys are stored before they are registered, and registering again with the same token and keys gives the same
    device, so a device that is killed in between loses nothing. A folder that knows its device needs no token; when
    the platform moved, the new address is kept.
    """
    known = home.identity()
    if known is not None:
        moved = replace(known, url=url.rstrip("/")) if url else known
        if moved != known:
            home.save_identity(moved)
        return moved
    if not token or not name:
        raise BadHome(f"{home.folder} knows no device yet: give a name and an enrolment token from an admin")
    keys = home.keys()
    with Platform(url, verify=verify) as platform:
        answer = platform.register_device(registration_body(keys, token, name, profile or {}))
    device = answer.device
    identity = DeviceIdentity(device.id, device.name, device.owner_id, platform.url, answer.api_key)
    home.save_identity(identity)
    return identity


def registration_body(keys: DeviceKeys, token: str, name: str, profile: Mapping[str, Any]) -> dict[str, Any]:
    """What a device sends to register: its profile, its public keys, and proof that it holds the private ones."""
    public = keys.public()
    return {
        **profile,
        "token": token,
        "name": name,
        "signing_key": _text(public.signing),
        "sealing_key": _text(public.sealing),
        "proof": _text(keys.sign(public.sealing)),
    }


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
