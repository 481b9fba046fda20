"""Visibility of ties: a device sees its own and those their owners share; an admin sees all, which is audited."""

from __future__ import annotations

from dataclasses import dataclass

from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.rpc.principal import current_principal, require_role
from services.kit.runtime.clock import Clock
from services.trust.errors import HiddenTie
from services.trust.store import audit, owners
from services.trust.usecases.directory import Directory, Entry

SHARED_WITH = {"own": 0, "owners": 1, "all": 2}


@dataclass(frozen=True, slots=True)
class View:
    """What one caller may see. `me` is the calling device, if any; `sharing` holds owners who share more than "own". A
    publisher sees ties shared with all."""

    sees_all: bool
    me: Entry | None
    sharing: dict[int, int]

    def sees(self, a: Entry, b: Entry) -> bool:
        """Whether the tie of two devices is the caller's own, or both its owners share it with the caller."""
        if self.sees_all or (self.me and self.me.number in (a.number, b.number)):
            return True
        level = min(self.sharing.get(a.owner_number, 0), self.sharing.get(b.owner_number, 0))
        within = self.me is not None and self.me.owner_number in (a.owner_number, b.owner_number)
        return level >= SHARED_WITH["all"] or (level >= SHARED_WITH["owners"] and within)

    def require(self, a: Entry, b: Entry) -> None:
        """Refuse a tie that the caller may not see."""
        if not self.sees(a, b):
            raise HiddenTie(f"the tie of {a.id} and {b.id} is not yours, and its owners do not share it with you")


class Visibility:
    """Opens views and audits what admins read."""

    def __init__(self, database: Database, clock: Clock, directory: Directory) -> None:
        self._database = database
        self._clock = clock
        self._directory = directory

    async def view(self, tx: Tx) -> View:
        """Return what the current caller may see."""
        caller = require_role("admin", "device", "publisher")
        if caller.role not in ("device", "publisher"):
            return View(True, None, {})
        me = (await self._directory.require(tx, caller.subject))[0] if caller.role == "device" else None
        shared = await owners.sharing(tx)
        return View(False, me, {number: SHARED_WITH[sharing] for number, sharing in shared})

    async def note(self, what: str, *things: str) -> None:
        """Record, before the answer, that an admin read personal ties."""
        if current_principal().role == "admin":
            async with self._database.writing() as tx:
                await audit.note(tx, self._clock.now(), "trust.read", ",".join(things[:2])[:200], what)
