"""Owners and their enrolment tokens."""

from __future__ import annotations

from dataclasses import replace

from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.rpc.paging import Page
from services.kit.rpc.principal import NotAllowed, require_role
from services.kit.runtime.clock import Clock
from services.kit.runtime.ids import new_id
from services.trust.domain import checks
from services.trust.domain.records import Owner, Token
from services.trust.errors import UnknownOwner
from services.trust.store import audit, keys, owners
from services.trust.usecases.credentials import Credential, new_credential

DAY_SECONDS = 86_400.0
MOST_USES = 1_000_000
LONGEST_TOKEN_SECONDS = 366 * DAY_SECONDS


class Owners:
    """People and organisations with devices."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def create(self, name: str, sharing: str, public: bool = False) -> Owner:
        """Create an owner; the same name returns the existing owner unchanged."""
        require_role("admin")
        checks.require_text("name", name, least=1)
        checks.require_one_of("sharing", sharing or "own", checks.SHARINGS)
        now = self._clock.now()
        async with self._database.writing() as tx:
            fresh = new_id("own")
            if await owners.add(tx, fresh, name=name, sharing=sharing or "own", at=now, public=public):
                await audit.note(tx, now, "owner.create", fresh)
            result = await owners.by_name(tx, name)
        assert result is not None  # added, or the reason it was not
        return result

    async def get(self, owner_id: str) -> Owner:
        """Return one owner; a device may read its own."""
        caller = require_role("admin", "publisher", "device")
        if caller.role == "device" and caller.owner_id != owner_id:
            raise NotAllowed("a device may read only its own owner; give that owner's id")
        async with self._database.reading() as tx:
            return await known_owner(tx, owner_id)

    async def page(self, wanted: Page) -> list[Owner]:
        """List owners in order of id."""
        require_role("admin", "publisher")
        async with self._database.reading() as tx:
            return await owners.page(tx, wanted)

    async def share(self, owner_id: str, sharing: str) -> Owner:
        """Change what an owner lets others see of its devices' ties."""
        require_role("admin")
        checks.require_one_of("sharing", sharing, checks.SHARINGS)
        async with self._database.writing() as tx:
            owner = await known_owner(tx, owner_id)
            if owner.sharing != sharing:
                await owners.set_sharing(tx, owner_id, sharing)
                note = f"{owner.sharing} → {sharing}"
                await audit.note(tx, self._clock.now(), "owner.share", owner_id, note)
        return replace(owner, sharing=sharing)

    async def issue_token(self, owner_id: str, uses: int, lifetime_seconds: float) -> tuple[Credential, float]:
        """Create an enrolment token for devices of one owner; return it with its expiry."""
        require_role("admin")
        checks.require_finite("uses", uses, least=0, most=MOST_USES)
        lifetime = checks.require_finite("lifetime_seconds", lifetime_seconds, least=0, most=LONGEST_TOKEN_SECONDS)
        now, token = self._clock.now(), new_credential("ct")
        expires_at = now + (lifetime or DAY_SECONDS)
        async with self._database.writing() as tx:
            owner = await known_owner(tx, owner_id)
            row = Token(
                id=token.id,
                digest=token.digest,
                owner_number=owner.number,
                owner_id=owner.id,
                uses_left=uses or 1,
                expires_at=expires_at,
            )
            await keys.add_token(tx, row, now)
            await audit.note(tx, now, "token.issue", token.id, f"{uses or 1} uses for {owner.id}")
        return token, expires_at


async def known_owner(tx: Tx, owner_id: str) -> Owner:
    """Return the owner with that id; raise if there is none."""
    owner = await owners.by_id(tx, owner_id) if checks.is_id("own", owner_id) else None
    if owner is None:
        raise UnknownOwner(f"no owner {owner_id[:40]!r}; list the owners, or create one first")
    return owner
