"""A device's folder: keys, identity, prepared updates and the privacy ledger. All files have mode 0600.

keys.json       signing and sealing keys (`coterie.protocol.keys`)
device.json     id, name, platform and API key
ledger.db       privacy charges (`coterie.privacy.ledger`)
ledger.count    number of releases, which detects an old ledger that was put back
circle.json     the owner's trusted devices and requirements for secure sums; optional (`coterie.secure_sums.circle`)
browsers/       the owner's browsers whose signed decisions the device accepts (`coterie.agent.pairing`)
approved.json   tasks that the owner approved in a browser; optional
private.json    settings that the owner keeps private, such as costs; optional
joined/         the terms of each task at the time the device joined it
clerk.db        state of the device as a clerk of secure sums (`coterie.secure_sums.committee_store`)
outbox/         prepared updates whose delivery is not confirmed
tasks/<task>/   state that a strategy carries from round to round
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from coterie.agent.pairing import BadLink, Browser
from coterie.errors import BadHome
from coterie.privacy.files import WidePermissions, refuse_wide_permissions, write_private_file
from coterie.privacy.ledger import Limit, PrivacyLedger
from coterie.protocol.keys import DeviceKeys
from coterie.protocol.letters import Tensors
from coterie.secure_sums.circle import BadCircle, Circle, invitation, read_invitation
from coterie.secure_sums.committee_store import CommitteeStore


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """Who a device is to the platform."""

    id: str
    name: str
    owner_id: str
    url: str
    api_key: str

    def __repr__(self) -> str:
        """Without the API key, so that a log line never shows it."""
        return f"DeviceIdentity({self.id}, {self.name!r}, {self.url})"


@dataclass(frozen=True, slots=True)
class Prepared:
    """An update ready to be sent, exactly as it will be sent; `body` is None when there are no tensors."""

    task_id: str
    round: int
    basis: str
    report: str
    body: Path | None

    @property
    def size_bytes(self) -> int:
        """Bytes of its tensors."""
        return self.body.stat().st_size if self.body is not None else 0


class Outbox:
    """What is prepared and not yet delivered, so that a device that was killed sends the same bytes again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, task_id: str, round: int, basis: str, report: str, body: bytes | None) -> Prepared:
        """Remembers an update; on disk when this returns.

        `basis` says what it was made from; another basis makes another update.
        """
        place = self._place(task_id, round)
        entry = {"task_id": task_id, "round": round, "basis": basis, "report": report, "digest": ""}
        if body is not None:
            entry["digest"] = hashlib.sha256(body).hexdigest()
            write_private_file(place.with_suffix(".safetensors"), body, replace=True)
        # The entry is written last: with it, the body is whole.
        write_private_file(place.with_suffix(".json"), json.dumps(entry).encode(), replace=True)
        return Prepared(task_id, round, basis, report, None if body is None else place.with_suffix(".safetensors"))

    def find(self, task_id: str, round: int, basis: str) -> Prepared | None:
        """What was prepared for a round, if it is whole and was made from `basis`."""
        result = self._read(task_id, round)
        return result if result is not None and result.basis == basis else None

    def _read(self, task_id: str, round: int) -> Prepared | None:
        place = self._place(task_id, round)
        try:
            entry = json.loads(place.with_suffix(".json").read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        basis, body = str(entry.get("basis")), place.with_suffix(".safetensors")
        if not entry["digest"]:
            return Prepared(task_id, round, basis, entry["report"], None)
        if not body.exists() or hashlib.sha256(body.read_bytes()).hexdigest() != entry["digest"]:
            return None
        return Prepared(task_id, round, basis, entry["report"], body)

    def find_latest(self, task_id: str, before: int) -> Prepared | None:
        """What was prepared last for a round before this one, if it is whole."""
        numbers = (path.name.split(".")[1] for path in self._folder.glob(f"{task_id}.*.json"))
        earlier = [int(number) for number in numbers if number.isdecimal() and int(number) < before]
        return self._read(task_id, max(earlier)) if earlier else None

    def put_letter(self, task_id: str, round: int, address: str, sealed: bytes) -> None:
        """Remembers a sealed letter; on disk when this returns. `address` names plan, kind and recipient."""
        write_private_file(self._letter(task_id, round, address), sealed, replace=True)

    def find_letter(self, task_id: str, round: int, address: str) -> bytes | None:
        """The letter remembered under an address."""
        try:
            return self._letter(task_id, round, address).read_bytes()
        except FileNotFoundError:
            return None

    def put_release(self, task_id: str, number: int, purpose: str, basis: str, body: bytes) -> None:
        """Remembers the bytes of a release, in place of another of that name; on disk when this returns."""
        content = f"{basis}\n{hashlib.sha256(body).hexdigest()}\n".encode() + body
        write_private_file(self._release(task_id, number, purpose), content, replace=True)

    def find_release(self, task_id: str, number: int, purpose: str, basis: str) -> bytes | None:
        """The release remembered under a name, if it is whole and was made from `basis`."""
        try:
            made_from, digest, body = self._release(task_id, number, purpose).read_bytes().split(b"\n", 2)
        except (FileNotFoundError, ValueError):
            return None
        whole = made_from == basis.encode() and digest == hashlib.sha256(body).hexdigest().encode()
        return body if whole else None

    def drop_release(self, task_id: str, number: int, purpose: str) -> None:
        """Forgets a release that may not leave."""
        self._release(task_id, number, purpose).unlink(missing_ok=True)

    def forget_before(self, task_id: str, round: int) -> None:
        """Drops what belongs to earlier rounds of a task."""
        for path in self._folder.glob(f"{task_id}.*"):
            number = path.name.split(".")[1]
            if number.isdecimal() and int(number) < round:
                path.unlink(missing_ok=True)

    def _place(self, task_id: str, round: int) -> Path:
        return self._folder / f"{task_id}.{round}.json"

    def _release(self, task_id: str, number: int, purpose: str) -> Path:
        return self._folder / f"{task_id}.{number}.{hashlib.sha256(purpose.encode()).hexdigest()[:32]}.release"

    def _letter(self, task_id: str, round: int, address: str) -> Path:
        return self._folder / f"{task_id}.{round}.{hashlib.sha256(address.encode()).hexdigest()[:32]}.letter"


class TaskState:
    """What a strategy carries from round to round of one task: named sets of tensors."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, name: str) -> Tensors | None:
        """The tensors last saved under a name; None when there are none, or they cannot be read."""
        try:
            return dict(load_tensors((self._folder / f"{name}.safetensors").read_bytes()))
        except (FileNotFoundError, SafetensorError):
            return None

    def save(self, name: str, tensors: Tensors) -> None:
        """Keeps tensors under a name, replacing earlier ones; on disk when this returns."""
        write_private_file(self._folder / f"{name}.safetensors", save_tensors(tensors), replace=True)

    def forget(self) -> None:
        """Drops everything."""
        shutil.rmtree(self._folder, ignore_errors=True)


class DeviceHome:
    """The folder of one device."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def outbox(self) -> Outbox:
        """Updates under way."""
        return Outbox(self.folder / "outbox")

    def keys(self) -> DeviceKeys:
        """The device's keys, made on the first call."""
        return DeviceKeys.load_or_create(self.folder / "keys.json")

    def ledger(self, limit: Limit | None = None) -> PrivacyLedger:
        """The device's privacy ledger; a limit given here replaces the one stored.

        A device that has lost its ledger is refused: a new one would forget what it gave away.
        """
        path = self.folder / "ledger.db"
        if not path.exists() and self.identity() is not None:
            raise BadHome(
                f"{path} is missing beside the device's identity; restore it from a backup, or register a new device "
                "into a new folder: an empty ledger would forget what was already given away"
            )
        return PrivacyLedger(path, limit)

    def joined(self, task_id: str) -> Path:
        """Where is kept what a task said when the device joined it (`coterie.secure_sums.joining`)."""
        return self.folder / "joined" / f"{task_id}.json"

    def committee_store(self) -> CommitteeStore:
        """What the device keeps as a clerk."""
        return CommitteeStore(self.folder / "clerk.db")

    def memory(self, task_id: str) -> TaskState:
        """What a strategy keeps for a task."""
        return TaskState(self.folder / "tasks" / task_id)

    def identity(self) -> DeviceIdentity | None:
        """Who the device is; None before it has registered."""
        content = self._read("device.json")
        if content is None:
            return None
        try:
            return DeviceIdentity(**content)
        except TypeError as error:
            raise BadHome(
                f"{self.folder / 'device.json'} is not a device's identity; register into a new folder"
            ) from (error)

    def save_identity(self, identity: DeviceIdentity) -> None:
        """Keeps who the device is, beside a ledger that is there from now on."""
        self.ledger()
        content = json.dumps(asdict(identity), indent=2).encode()
        write_private_file(self.folder / "device.json", content, replace=True)

    def browsers(self) -> dict[str, Browser]:
        """Browsers linked on this device, by link."""
        result: dict[str, Browser] = {}
        for path in sorted((self.folder / "browsers").glob("lnk_*.json")):
            try:
                refuse_wide_permissions(path)
                browser = Browser.read(path.read_bytes())
            except (BadLink, WidePermissions) as error:
                raise BadHome(f"{path}: {error}") from error
            result[browser.link] = browser
        return result

    def save_browser(self, browser: Browser) -> None:
        """Believes a browser's decisions from now on."""
        write_private_file(self.folder / "browsers" / f"{browser.link}.json", browser.written(), replace=True)

    def forget_browser(self, link: str) -> bool:
        """Believes a browser no more; whether it was known."""
        known = link in self.browsers()
        if known:
            (self.folder / "browsers" / f"{link}.json").unlink(missing_ok=True)
        return known

    def last_heard(self, link: str) -> int:
        """Number of the last decision of a browser that the device took."""
        content = self._read(f"browsers/{link}.heard") or {}
        return int(content.get("number", 0))

    def save_last_heard(self, link: str, number: int) -> None:
        """Keeps that number; no older decision counts from now on."""
        content = json.dumps({"number": number}).encode()
        write_private_file(self.folder / "browsers" / f"{link}.heard", content, replace=True)

    def approved(self) -> dict[str, str]:
        """Tasks the owner approved in a linked browser, with the digest of what was shown."""
        return {str(task): str(terms) for task, terms in (self._read("approved.json") or {}).items()}

    def save_approved(self, approved: Mapping[str, str]) -> None:
        """Replaces them."""
        write_private_file(self.folder / "approved.json", json.dumps(dict(approved), indent=2).encode(), replace=True)

    def circle(self) -> Circle:
        """Return the owner's circle; an empty one before the file exists."""
        try:
            return Circle.load(self.folder / "circle.json")
        except (BadCircle, WidePermissions) as error:
            raise BadHome(str(error)) from error

    def invitation(self) -> str:
        """What another owner needs to take this device into a circle: its id, its owner and its key, as one text."""
        identity = self.identity()
        if identity is None:
            raise BadHome(f"{self.folder} holds no registered device; register it first")
        return invitation(identity.id, self.keys().public().signing, identity.owner_id)

    def admit(self, invited: str) -> str:
        """Add the device of an invitation, which must come from its owner directly, to the circle; return its id."""
        try:
            device, member = read_invitation(invited)
            self.save_circle(self.circle().with_member(device, member.signing_key, member.owner))
        except BadCircle as error:
            raise BadHome(str(error)) from error
        return device

    def save_circle(self, circle: Circle) -> None:
        """Replaces the circle; it counts from the next round on."""
        circle.save(self.folder / "circle.json")

    def private_settings(self) -> Mapping[str, Any]:
        """What the owner keeps to itself, such as `{"costs": {"quadratic": 2.0}}`."""
        return self._read("private.json") or {}

    @property
    def is_paused(self) -> bool:
        """Whether the owner wants the device to do nothing for now; it then declines all work."""
        return bool(self.private_settings().get("paused", False))

    def save_private_settings(self, settings: Mapping[str, Any]) -> None:
        """Replaces the private settings."""
        write_private_file(self.folder / "private.json", json.dumps(dict(settings), indent=2).encode(), replace=True)

    def keep_private(self, changes: Mapping[str, Any]) -> None:
        """Adds to the private settings, or changes them, leaving the others as they are by now."""
        self.save_private_settings({**self.private_settings(), **changes})

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.folder / name
        try:
            refuse_wide_permissions(path)
            content = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except WidePermissions as error:
            raise BadHome(str(error)) from error
        except ValueError as error:
            raise BadHome(f"{path} is not JSON ({error}); restore it, or register into a new folder") from error
        if not isinstance(content, dict):
            raise BadHome(f"{path} must hold a JSON object")
        return content


def introduce(*homes: DeviceHome) -> None:
    """Takes each of these devices into the circle of every other, for folders that lie beside each other.

    Owners apart do the same by `coterie circle show` and `coterie circle add`.
    """
    known = {home.folder: read_invitation(home.invitation()) for home in homes}
    for home in homes:
        circle = home.circle()
        for folder, (device, member) in known.items():
            if folder != home.folder:
                circle = circle.with_member(device, member.signing_key, member.owner)
        home.save_circle(circle)
