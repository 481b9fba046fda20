"""What must be true of what a device sends; `Broken` says which rule of docs/reference/protocol.md it is not by."""

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

from coterie.protocol.keys import BadKeys, DeviceKeys, PublicKeys, demand_sound, sealed_to_identity
from coterie.protocol.letters import Letter, LetterError, SeenLetters, Subject, open_letter
from coterie.strategies.head_checks import largest_norm, misfit
from coterie_cli.conformance.scene import DEVICE, Scene
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


class Broken(Exception):
    """What a device sent is not by the protocol."""


@dataclass(frozen=True, slots=True)
class Update:
    """A delivery that was read; `digest` is empty without a body."""

    report: Mapping[str, Any]
    text: str
    tensors: Tensors
    digest: str


def registration(request: Request, token: str) -> tuple[PublicKeys, str]:
    """Keys and name of a device that registers."""
    body = json_object(request.body, "the body of POST /v1/devices")
    if unknown := sorted(body.keys() - _REGISTRATION):
        raise Broken(f"POST /v1/devices: {unknown[0]!r} is no field of a registration")
    if body.get("token") != token:
        raise Broken("POST /v1/devices: token is not the enrolment token that was handed out")
    name = body.get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= 100:
        raise Broken("POST /v1/devices: name must have 1 to 100 characters")
    signing, sealing, proof = (
        key_bytes(body.get(field), size, field)
        for field, size in (("signing_key", 32), ("sealing_key", 32), ("proof", 64))
    )
    try:
        demand_sound(signing, sealing)
        PublicKeys(signing, sealing, b"").verify_signature(sealing, proof)
    except BadKeys as error:
        raise Broken(f"proof must be the Ed25519 signature of the raw 32 bytes of sealing_key ({error})") from error
    return PublicKeys(signing, sealing, b""), name


def update(request: Request, scene: Scene, *, form: str = "mean", most_weight: float | None = None) -> Update:
    """A delivery as the platform would take it."""
    text = request.headers.get("coterie-update", "")
    if len(text) > MOST_REPORT:
        raise Broken(f"Coterie-Update has {len(text)} characters, {MOST_REPORT} are taken")
    report = json_object(text.encode("latin-1"), "the header Coterie-Update")
    if unknown := sorted(report.keys() - _REPORT):
        raise Broken(f"Coterie-Update: {unknown[0]!r} is no field of a report")
    if report.get("form", "mean") != form:
        raise Broken(f"Coterie-Update: the form should be {form!r}, not {report.get('form')!r}")
    _check_figures(report, scene.samples if most_weight is None else most_weight)
    if form == "report":
        if request.body:
            raise Broken("a report has no body: the update goes to the head")
        return Update(report, text, {}, "")
    digest = hashlib.sha256(request.body).hexdigest()
    if request.headers.get("coterie-digest") != digest:
        raise Broken("Coterie-Digest must be the SHA-256 of the body, 64 lower-case hexadecimal digits")
    return Update(report, text, _fitting(request.body, scene), digest)


def is_change(tensors: Tensors, scene: Scene) -> None:
    """A change of the model: not zero, and not the model itself."""
    sent, model = flat(tensors), flat(scene.tensors)
    if not np.any(sent):
        raise Broken("the update is zero everywhere: train before you deliver")
    if np.any(model) and np.linalg.norm(sent - model) < 0.5 * np.linalg.norm(sent):
        raise Broken("the trained model was handed in; an update is the change, after minus before")


def claims(report: Mapping[str, Any], mechanism: str, parameter: float | None = None) -> None:
    """The report says what the release cost."""
    told = [claim for claim in report.get("privacy", []) if claim.get("mechanism") == mechanism]
    if not told:
        raise Broken(f"Coterie-Update: privacy must list this release as {mechanism!r}")
    if parameter is not None and not any(math.isclose(claim.get("parameter", 0.0), parameter) for claim in told):
        raise Broken(f"Coterie-Update: privacy must tell the noise multiplier {parameter:g} the work asked for")
    if any(claim.get("unit") != "device" for claim in told):
        raise Broken('Coterie-Update: a clipped or raw change is of the unit "device"')


def within_noise(tensors: Tensors, bound: float, multiplier: float) -> None:
    """The norm of what was clipped and noised, on both sides."""
    vector = flat(tensors)
    norm, most = float(np.linalg.norm(vector)), largest_norm(bound, multiplier, vector.size)
    least = max(0.0, multiplier * bound * (math.sqrt(vector.size) - 6.0) - bound)
    if norm > most:
        raise Broken(f"the update has norm {norm:.4g}; clipped to {bound:g} and noised it has {most:.4g} at most")
    if norm < least:
        raise Broken(f"the update has norm {norm:.4g}; with the noise that was asked for it has {least:.4g} at least")


def letter(sealed: bytes, subject: Subject, reader: DeviceKeys, recipient: str, scene: Scene) -> tuple[Letter, str]:
    """A letter of the device under test, opened; and between which keys it was sealed."""
    assert scene.device is not None
    tries = (
        ("identities", reader.as_identity(), sealed_to_identity(scene.device.signing)),
        ("sealing keys", reader, scene.device.sealing),
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
        if wrong := misfit(opened.tensors, dict(scene.tensors)):
            raise Broken(f"the letter: {wrong}")
        return opened, between
    raise Broken(f"the letter does not open: {fault}")


def flat(tensors: Tensors) -> np.ndarray[Any, np.dtype[np.float64]]:
    """All numbers in one vector, by name."""
    return np.concatenate([np.ravel(tensors[name]).astype(np.float64) for name in sorted(tensors)])


def json_object(content: bytes, what: str) -> dict[str, Any]:
    """A JSON object from bytes."""
    try:
        result = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Broken(f"{what} is no JSON ({error})") from error
    if not isinstance(result, dict):
        raise Broken(f"{what} must be a JSON object")
    return result


def key_bytes(text: object, size: int, field: str) -> bytes:
    """Bytes of standard base64 with padding."""
    try:
        result = base64.b64decode(str(text), validate=True)
    except binascii.Error as error:
        raise Broken(f"{field} is no standard base64 ({error})") from error
    if len(result) != size:
        raise Broken(f"{field} must be {size} bytes in base64, not {len(result)}")
    return result


def _check_figures(report: Mapping[str, Any], most_weight: float) -> None:
    weight, metrics = report.get("weight", 0.0), report.get("metrics", {})
    if not _is_number(weight) or not 0 < weight <= most_weight * (1 + 1e-9):
        raise Broken(f"Coterie-Update: weight must be above 0 and at most {most_weight:g} here, not {weight!r}")
    if not isinstance(metrics, dict) or len(metrics) > 32 or not all(_is_number(value) for value in metrics.values()):
        raise Broken("Coterie-Update: metrics are at most 32 finite numbers by name")
    for claim in report.get("privacy", []):
        if not isinstance(claim, dict) or claim.get("mechanism") not in _MECHANISMS:
            raise Broken(f"Coterie-Update: a privacy claim names a mechanism, one of {', '.join(sorted(_MECHANISMS))}")


def _fitting(body: bytes, scene: Scene) -> Tensors:
    try:
        tensors = dict(load(body))
    except (SafetensorError, ValueError, KeyError) as error:
        raise Broken(f"the body is no safetensors file ({error})") from error
    if wrong := misfit(tensors, dict(scene.tensors)):
        raise Broken(f"the update: {wrong}")
    return tensors


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
