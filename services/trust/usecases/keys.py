"""API keys of admins and publishers, authentication of every key, and the first admin key."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from services.kit.database.engine import Database
from services.kit.database.rows import advisory_lock
from services.kit.observability.logs import get_logger
from services.kit.rpc.paging import Page
from services.kit.rpc.principal import require_role
from services.kit.runtime.batcher import Batcher
from services.kit.runtime.clock import Clock
from services.kit.runtime.ids import new_id
from services.trust.domain import checks
from services.trust.domain.records import ApiKey
from services.trust.errors import InvalidAdminKeyFile, InvalidApiKey, LastAdminKey, NameTaken, PastEnd, UnknownKey
from services.trust.store import audit, keys
from services.trust.usecases.credentials import Credential, matches, new_credential, parse

SUBJECT_PREFIX = {"admin": "adm", "publisher": "pub"}
BOOTSTRAP_NAME = "bootstrap"
_KEYS_LOCK = "trust keys"  # serialises changes of admin and publisher keys
KEYS_PER_READ = 200
MOST_GRACE_SECONDS = 30 * 86_400.0
"""Longest overlap of an old key with its successor."""
_log = get_logger()


class Keys:
    """API keys: who may call the platform."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._lookups = Batcher(self._read, size=KEYS_PER_READ)

    async def authenticate(self, text: str) -> ApiKey:
        """Return the key, and with it the caller."""
        presented = parse("ck", text)
        if presented is None:
            raise InvalidApiKey("malformed API key: it reads ck_….… and was shown once, when it was created")
        key = await self._lookups.add(presented.id)
        if key is None or not matches(presented, key.digest):
            raise InvalidApiKey("unknown API key; register again, or ask an admin for a new one")
        if key.revoked_at is not None:
            raise InvalidApiKey("that API key was revoked; register again, or ask an admin for a new one")
        if not key.works(self._clock.now()):
            raise InvalidApiKey("that API key has expired; ask an admin for a new one, and rotate it before it expires")
        return key

    async def _read(self, key_ids: Sequence[str]) -> list[ApiKey | None]:
        async with self._database.reading() as tx:
            stored = await keys.by_ids(tx, list(set(key_ids)))
        return [stored.get(key_id) for key_id in key_ids]

    async def create(self, role: str, name: str, expires_at: float = 0.0) -> tuple[ApiKey, Credential]:
        """Create a key for an admin or a publisher; a name that had a key keeps its subject."""
        require_role("admin")
        checks.require_one_of("role", role, tuple(SUBJECT_PREFIX))
        checks.require_text("name", name, least=1)
        now, secret = self._clock.now(), new_credential("ck")
        end = _end(expires_at, now)
        async with self._database.writing() as tx:
            await advisory_lock(tx, _KEYS_LOCK)
            former = await keys.by_name(tx, role, name)
            if any(key.works(now) for key in former):
                raise NameTaken(f"{role} {name!r} has a valid key; revoke it first, or choose another name")
            subject = former[0].subject if former else new_id(SUBJECT_PREFIX[role])
            key = ApiKey(
                id=secret.id,
                digest=secret.digest,
                role=role,
                subject=subject,
                name=name,
                owner_id="",
                created_at=now,
                revoked_at=None,
                expires_at=end,
            )
            await keys.add(tx, key)
            await audit.note(tx, now, "key.create", key.id, f"{role} {name}")
        return key, secret

    async def page(self, wanted: Page, subject: str = "") -> list[ApiKey]:
        """List keys of admins and publishers, or of one of them, valid or not."""
        require_role("admin")
        async with self._database.reading() as tx:
            return await keys.page(tx, wanted, tuple(SUBJECT_PREFIX), subject)

    async def rotate(self, key_id: str, grace_seconds: float, expires_at: float) -> tuple[ApiKey, Credential]:
        """Create a successor of a key; the old one stays valid for `grace_seconds`.

        A publisher's new key expires no later than the old one: only an admin extends its time.
        """
        caller = require_role("admin", "publisher")
        checks.require_finite("grace_seconds", grace_seconds, least=0.0, most=MOST_GRACE_SECONDS)
        now, secret = self._clock.now(), new_credential("ck")
        end = _end(expires_at, now)
        async with self._database.writing() as tx:
            await advisory_lock(tx, _KEYS_LOCK)
            old = await keys.by_id(tx, key_id) if checks.is_id("key", key_id) else None
            is_own = old is not None and (caller.role != "publisher" or caller.subject == old.subject)
            if old is None or not is_own or old.role not in SUBJECT_PREFIX:
                raise UnknownKey(f"no API key {key_id[:40]!r} that you may rotate; its id was shown with the key")
            if not old.works(now):
                raise UnknownKey(f"{key_id} is revoked or expired and cannot be rotated; create a key instead")
            if caller.role == "publisher" and old.expires_at is not None:  # an admin or a rotation limited it
                end = min(end or math.inf, old.expires_at)
            key = ApiKey(
                id=secret.id,
                digest=secret.digest,
                role=old.role,
                subject=old.subject,
                name=old.name,
                owner_id="",
                created_at=now,
                revoked_at=None,
                expires_at=end,
            )
            await keys.add(tx, key)
            await keys.end(tx, old.id, now + grace_seconds)
            await audit.note(tx, now, "key.rotate", old.id, f"replaced by {key.id}, goes on for {grace_seconds:.0f} s")
        return key, secret

    async def revoke(self, key_id: str) -> None:
        """Stop a key at once; repeating it changes nothing."""
        require_role("admin")
        now = self._clock.now()
        async with self._database.writing() as tx:
            await advisory_lock(tx, _KEYS_LOCK)
            key = await keys.by_id(tx, key_id) if checks.is_id("key", key_id) else None
            if key is None:
                raise UnknownKey(f"no API key {key_id[:40]!r}; its id was shown with the key")
            if key.revoked_at is not None:
                return
            if key.role == "admin" and await keys.live_count(tx, "admin", now) == 1:
                raise LastAdminKey("this is the last valid admin key; create another before you revoke it")
            await keys.revoke(tx, key_id, now)
            await audit.note(tx, now, "key.revoke", key_id, f"{key.role} {key.name}")

    async def bootstrap(self, path: Path, *, required: bool) -> None:
        """Make sure that an admin key exists: adopt the one in `path`, which is created if there is none.

        `required`: the settings name the file, so it must exist. The file is written before the row: a start that fails
        between the two adopts the same key next time.
        """
        now = self._clock.now()
        async with self._database.writing() as tx:
            await advisory_lock(tx, _KEYS_LOCK)
            alone = await keys.live_count(tx, "admin", now) == 0
            if not required and not alone:
                return
            secret = _read_or_write_key(path, required)
            known = await keys.by_id(tx, secret.id)
            if known is not None and not known.works(now) and not required:
                secret, known = _write_key(path), None
            if known is None:
                subject = new_id(SUBJECT_PREFIX["admin"])
                row = ApiKey(
                    id=secret.id,
                    digest=secret.digest,
                    role="admin",
                    subject=subject,
                    name=BOOTSTRAP_NAME,
                    owner_id="",
                    created_at=now,
                    revoked_at=None,
                )
                await keys.add(tx, row)
                await audit.note(tx, now, "key.bootstrap", secret.id, "adopted from the admin key file")
                _log.info("admin key ready", path=str(path))


def _end(expires_at: float, now: float) -> float | None:
    """Return a new key's expiry; raise when it is not in the future."""
    if expires_at and not now < expires_at < math.inf:
        raise PastEnd("expires_at must be in the future, in Unix seconds, or 0 for never")
    return expires_at or None


def _read_or_write_key(path: Path, required: bool) -> Credential:
    return _read_key(path) if required or path.exists() else _write_key(path)


def _read_key(path: Path) -> Credential:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidAdminKeyFile(f"cannot read the admin key file {path}: {error}") from error
    key = parse("ck", text)
    if key is None:
        raise InvalidAdminKeyFile(
            f"{path} holds no admin key; it must read ck_<26 lower-case letters or digits>.<32 or more characters of "
            "A-Z a-z 0-9 _ ->; correct it, or delete it to create a new key"
        )
    return key


def _write_key(path: Path) -> Credential:
    """Create a key in `path` atomically, readable by its user alone."""
    secret = new_credential("ck")
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secret.text + "\n")
        file.flush()
        os.fsync(file.fileno())
    staging.replace(path)
    return secret
