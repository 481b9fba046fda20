"""Checks of what a device sends; `ProtocolViolation` names the rule of docs/reference/protocol.md that it breaks."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from coterie.protocol.keys import BadKeys, DeviceKeys, PublicKeys, require_sound, sealed_to_identity
from coterie.protocol.letters import Letter, LetterError, SeenLetters, Subject, open_letter
from coterie.strategies.head_checks import largest_norm, misfit
from coterie_cli.conformance.fixtures import DEVICE, Fixtures
from coterie_cli.conformance.server import Request

Tensors = Mapping[str, np.ndarray[Any, Any]]
MOST_REPORT = 32 * 1024
_REGISTRATION = {
    "token", "name", "kind", "brand", "model", "location", "capabilities", "signing_key", "sealing_key", "proof"
}  # fmt: skip
_REPORT = {
    "form", "weight", "metrics", "public_metrics", "model_index", "budget", "privacy", "members", "sum"
}  # fmt: skip
_MECHANISMS = {"gaussian", "laplace", "zcdp", "raw"}


class ProtocolViolation(Exception):
    """The device broke a rule of the protocol."""


@dataclass(frozen=True, slots=True)
class Update:
    """A parsed delivery; `digest` is empty without a body."""

    report: Mapping[str, Any]
    text: str
    tensors: Tensors
    digest: str


def registration(request: Request, token: str) -> tuple[PublicKeys, str]:
    """Return the keys and the name in a registration."""
    body = json_object(request.body, "the body of POST /v1/devices")
    if unknown := sorted(body.keys() - _REGISTRATION):
        raise ProtocolViolation(f"POST /v1/devices: {unknown[0]!r} is not a field of a registration")
    if body.get("token") != token:
        raise ProtocolViolation("POST /v1/devices: token is not the enrolment token of this run")
    name = body.get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= 100:
        raise ProtocolViolation("POST /v1/devices: name must have 1 to 100 characters")
    signing, sealing, proof = (
        key_bytes(body.get(field), size, field)
        for field, size in (("signing_key", 32), ("sealing_key", 32), ("proof", 64))
    )
    try:
        require_sound(signing, sealing)
        PublicKeys(signing, sealing, b"").verify_signature(sealing, proof)
    except BadKeys as error:
        raise ProtocolViolation(
            f"proof must be the Ed25519 signature of the raw 32 bytes of sealing_key ({error})"
        ) from error
    return PublicKeys(signing, sealing, b""), name


def update(request: Request, fixtures: Fixtures, *, form: str = "mean", most_weight: float | None = None) -> Update:
    """Parse a delivery and check it as the platform does."""
    text = request.headers.get("coterie-update", "")
    if len(text) > MOST_REPORT:
        raise ProtocolViolation(f"Coterie-Update has {len(text)} characters; the limit is {MOST_REPORT}")
    report = json_object(text.encode("latin-1"), "the header Coterie-Update")
    if unknown := sorted(report.keys() - _REPORT):
        raise ProtocolViolation(f"Coterie-Update: {unknown[0]!r} is not a field of a report")
    if report.get("form", "mean") != form:
        raise ProtocolViolation(f"Coterie-Update: the form should be {form!r}, not {report.get('form')!r}")
    _check_metrics(report, fixtures.samples if most_weight is None else most_weight)
    if form == "report":
        if request.body:
            raise ProtocolViolation("a report must have no body: the update goes to the head")
        return Update(report, text, {}, "")
    digest = hashlib.sha256(request.body).hexdigest()
    if request.headers.get("coterie-digest") != digest:
        raise ProtocolViolation("Coterie-Digest must be the SHA-256 of the body, 64 lower-case hexadecimal digits")
    return Update(report, text, _load_tensors(request.body, fixtures), digest)


def require_change(tensors: Tensors, fixtures: Fixtures) -> None:
    """Require a change of the model: not zero, and not the model itself."""
    sent, model = flat(tensors), flat(fixtures.tensors)
    if not np.any(sent):
        raise ProtocolViolation("the update is zero everywhere: train before you deliver")
    if np.any(model) and np.linalg.norm(sent - model) < 0.5 * np.linalg.norm(sent):
        raise ProtocolViolation("the update is the trained model; send the change, after minus before")


def require_claim(report: Mapping[str, Any], mechanism: str, parameter: float | None = None) -> None:
    """Require that the report states the privacy cost of the release."""
    matching = [claim for claim in report.get("privacy", []) if claim.get("mechanism") == mechanism]
    if not matching:
        raise ProtocolViolation(f"Coterie-Update: privacy must list this release as {mechanism!r}")
    if parameter is not None and not any(math.isclose(claim.get("parameter", 0.0), parameter) for claim in matching):
        raise ProtocolViolation(f"Coterie-Update: privacy must state the noise multiplier {parameter:g} of the work")
    if any(claim.get("unit") != "device" for claim in matching):
        raise ProtocolViolation('Coterie-Update: a clipped or raw change has the unit "device"')


def require_noise(tensors: Tensors, bound: float, multiplier: float) -> None:
    """Require a norm that a clipped and noised update can have, from below and from above."""
    vector = flat(tensors)
    norm, most = float(np.linalg.norm(vector)), largest_norm(bound, multiplier, vector.size)
    least = max(0.0, multiplier * bound * (math.sqrt(vector.size) - 6.0) - bound)
    if norm > most:
        raise ProtocolViolation(
            f"the update has norm {norm:.4g}; clipped to {bound:g} and noised it is at most {most:.4g}"
        )
    if norm < least:
        raise ProtocolViolation(f"the update has norm {norm:.4g}; with the requested noise it is at least {least:.4g}")


def open_sealed(
    sealed: bytes, subject: Subject, reader: DeviceKeys, recipient: str, fixtures: Fixtures
) -> tuple[Letter, str]:
    """Open a letter of the device under test; return it and the kind of keys it was sealed between."""
    assert fixtures.device is not None
    tries = (
        ("identities", reader.as_identity(), sealed_to_identity(fixtures.device.signing)),
        ("sealing keys", reader, fixtures.device.sealing),
    )
    fault = ""
    for between, keys, sender in tries:
        try:
            opened = open_letter(
                sealed, keys, recipient=recipient, subject=subject, peers={DEVICE: sender}, seen=SeenLetters()
            )
        except LetterError as error:
            fault = str(error)
            continue
        if wrong := misfit(opened.tensors, dict(fixtures.tensors)):
            raise ProtocolViolation(f"the letter: {wrong}")
        return opened, between
    raise ProtocolViolation(f"the letter does not open: {fault}")


def flat(tensors: Tensors) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Concatenate all tensors in the order of their names."""
    return np.concatenate([np.ravel(tensors[name]).astype(np.float64) for name in sorted(tensors)])


def json_object(content: bytes, what: str) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        result = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ProtocolViolation(f"{what} is not JSON ({error})") from error
    if not isinstance(result, dict):
        raise ProtocolViolation(f"{what} must be a JSON object")
    return result


def key_bytes(text: object, size: int, field: str) -> bytes:
    """Decode `size` bytes of standard base64 with padding."""
    try:
        result = base64.b64decode(str(text), validate=True)
    except binascii.Error as error:
        raise ProtocolViolation(f"{field} is not standard base64 ({error})") from error
    if len(result) != size:
        raise ProtocolViolation(f"{field} must be {size} bytes in base64, not {len(result)}")
    return result


def _check_metrics(report: Mapping[str, Any], most_weight: float) -> None:
    weight, metrics = report.get("weight", 0.0), report.get("metrics", {})
    if not _is_number(weight) or not 0 < weight <= most_weight * (1 + 1e-9):
        raise ProtocolViolation(
            f"Coterie-Update: weight must be above 0 and at most {most_weight:g} here, not {weight!r}"
        )
    if not isinstance(metrics, dict) or len(metrics) > 32 or not all(_is_number(value) for value in metrics.values()):
        raise ProtocolViolation("Coterie-Update: metrics must be at most 32 finite numbers by name")
    for claim in report.get("privacy", []):
        if not isinstance(claim, dict) or claim.get("mechanism") not in _MECHANISMS:
            raise ProtocolViolation(
                f"Coterie-Update: a privacy claim must name one of the mechanisms {', '.join(sorted(_MECHANISMS))}"
            )


def _load_tensors(body: bytes, fixtures: Fixtures) -> Tensors:
    try:
        tensors = dict(load(body))
    except (SafetensorError, ValueError, KeyError) as error:
        raise ProtocolViolation(f"the body is not a safetensors file ({error})") from error
    if wrong := misfit(tensors, dict(fixtures.tensors)):
        raise ProtocolViolation(f"the update: {wrong}")
    return tensors


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
