"""Relations: declared by owners, computed from profiles, derived from meetings and common tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.kit.database.engine import Database
from services.kit.rpc.paging import Page
from services.kit.rpc.principal import NotAllowed, require_device, require_role
from services.kit.runtime.clock import Clock
from services.trust.domain import checks
from services.trust.domain.kinds import KINDS, require_kind
from services.trust.domain.records import Friendship, SocialRelation
from services.trust.errors import InvalidField
from services.trust.store import audit, relations, social
from services.trust.usecases.directory import Directory, Entry
from services.trust.usecases.encounters import STORED_KINDS, Encountering
from services.trust.usecases.owners import known_owner
from services.trust.usecases.visibility import Visibility

MOST_RELATED = 1_000
MOST_DECLARED = 10_000


@dataclass(frozen=True, slots=True)
class Declared:
    """Each device's owner by number from 0, and the owners' declarations: who, of whom, how close."""

    owners: list[int]
    declarations: list[tuple[int, int, float]]


class SocialRelations:
    """Who is related to whom, and why."""

    def __init__(
        self, database: Database, clock: Clock, directory: Directory, visibility: Visibility, encountering: Encountering
    ) -> None:
        self._database = database
        self._clock = clock
        self._directory = directory
        self._visibility = visibility
        self._encountering = encountering

    async def befriend(self, owner_a: str, owner_b: str, strength: float) -> Friendship:
        """Declare friendship of two owners, change its strength, or withdraw it (strength 0).

        A device acts for its own owner, which is then `owner_a`; the other owner confirms by declaring it too. An admin
        vouches for both. Withdrawal ends it for both: to hold again, both have to declare it again.
        """
        caller = require_role("admin", "device")
        if caller.role == "device" and caller.owner_id != owner_a:
            raise NotAllowed("a device may declare friendship only for its own owner; name that owner first")
        checks.require_finite("strength", strength, least=0, most=1)
        if owner_a == owner_b:
            raise InvalidField("friendship needs two different owners")
        now = self._clock.now()
        async with self._database.writing() as tx:
            a, b = await known_owner(tx, owner_a), await known_owner(tx, owner_b)
            low, high = min(a.number, b.number), max(a.number, b.number)
            current = await relations.friendship(tx, low, high) or Friendship(low, high, 0.0, 0.0, now)
            both = caller.role != "device" or strength == 0
            friendship = Friendship(
                low,
                high,
                strength if both or a.number == low else current.low_strength,
                strength if both or a.number == high else current.high_strength,
                now,
            )
            await relations.set_friendship(tx, friendship)
            act = "confirmed by both" if friendship.confirmed else "not confirmed"
            await audit.note(tx, now, "friendship.declare", f"{owner_a},{owner_b}", f"strength {strength:g}, {act}")
        return friendship

    async def friendships(self, owner_id: str, wanted: Page) -> tuple[int, list[tuple[int, str, Friendship]]]:
        """List an owner's friendships, including unconfirmed ones: the owner's number, and each with the other owner's
        number and id."""
        caller = require_role("admin", "device")
        if caller.role == "device" and caller.owner_id != owner_id:
            raise NotAllowed("a device may list only its own owner's friendships; give that owner's id")
        async with self._database.reading() as tx:
            owner = await known_owner(tx, owner_id)
            return owner.number, await relations.friendships_of(tx, owner.number, wanted)

    async def derive(self, kinds: Sequence[str]) -> dict[str, int]:
        """Derive stored relations again (all kinds, or some) and count every kind."""
        require_role("admin")
        wanted = {require_kind(kind) for kind in kinds} or set(KINDS)
        chosen = [kind for kind in STORED_KINDS if kind in wanted]
        now = self._clock.now()
        async with self._database.writing(offload=True) as tx:
            await social.locked(tx)
            derived = await self._encountering.recount(tx, chosen, now)
            counted = await relations.counts(tx)
            await audit.note(tx, now, "relations.derive", ",".join(kinds) or "all", f"{derived} derived")
        return {kind: number for kind, number in counted.items() if kind in wanted}

    async def page(self, device_id: str, wanted: Page) -> tuple[list[tuple[int, SocialRelation]], dict[int, Entry]]:
        """List a device's relations, each with its cursor, and the devices they name."""
        require_device(device_id)
        await self._visibility.note("relations", device_id)
        async with self._database.reading() as tx:
            (device,) = await self._directory.require(tx, device_id)
            result = await relations.of_device(tx, device.number, wanted)
            named = {number for _, item in result for number in (item.a, item.b)}
            return result, await self._directory.named(tx, named)

    async def related(self, device_ids: Sequence[str], kinds: Sequence[str], at: float) -> list[tuple[int, int]]:
        """Return pairs of the devices, by place, related in one of these ways at `at` (0 = now)."""
        require_role()
        checks.require_at_most("devices", len(device_ids), MOST_RELATED)
        wanted = {require_kind(kind).value for kind in kinds}
        async with self._database.reading(offload=True) as tx:
            places = {entry.number: p for p, entry in enumerate(await self._directory.require(tx, *device_ids))}
            result = await relations.every_pair(tx, at or None, list(places))
        pairs = {(places[low], places[high]) for low, high, kind, _ in result if kind in wanted}
        return sorted({(min(pair), max(pair)) for pair in pairs})

    async def declared(self, device_ids: Sequence[str]) -> Declared:
        """Return the owners' declarations, in both directions of every friendship that holds."""
        require_role()
        checks.require_at_most("devices", len(device_ids), MOST_DECLARED)
        async with self._database.reading() as tx:
            entries = await self._directory.require(tx, *device_ids)
            places: dict[int, int] = {}
            owners = [places.setdefault(entry.owner_number, len(places)) for entry in entries]
            held = await relations.held_friendships(tx, list(places))
        declarations = [
            end
            for item in held
            for end in (
                (places[item.low], places[item.high], item.low_strength),
                (places[item.high], places[item.low], item.high_strength),
            )
        ]
        return Declared(owners, sorted(declarations))
