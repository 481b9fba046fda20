"""Relations: declared by owners, read off profiles, derived from meetings and common tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.kit.database.engine import Database
from services.kit.rpc.paging import Page
from services.kit.rpc.principal import NotAllowed, require_device, require_role
from services.kit.runtime.clock import Clock
from services.trust.domain import checks
from services.trust.domain.kinds import KINDS, named
from services.trust.domain.records import Friendship, SocialRelation
from services.trust.errors import InvalidField
from services.trust.store import audit, relations, social
from services.trust.usecases.directory import Directory, Entry
from services.trust.usecases.encounters import STORED_KINDS, Encountering
from services.trust.usecases.owners import known_owner
from services.trust.usecases.visibility import Sight

MOST_RELATED = 1_000
MOST_DECLARED = 10_000


@dataclass(frozen=True, slots=True)
class Declared:
    """Each device's owner by number from 0, and what these owners declare: who, of whom, how close."""

    owners: list[int]
    said: list[tuple[int, int, float]]


class SocialRelations:
    """Who is related to whom, and why."""

    def __init__(
        self, database: Database, clock: Clock, directory: Directory, sight: Sight, encountering: Encountering
    ) -> None:
        self._database = database
        self._clock = clock
        self._directory = directory
        self._sight = sight
        self._encountering = encountering

    async def befriend(self, owner_a: str, owner_b: str, strength: float) -> Friendship:
        """Declares friendship of two owners, changes its strength, or withdraws it (strength 0).

        A device speaks for its own owner, which is then `owner_a`; the other owner confirms by declaring it too. An
        admin vouches for both. Whoever withdraws ends it for both: to hold again, both have to declare it again.
        """
        caller = require_role("admin", "device")
        if caller.role == "device" and caller.owner_id != owner_a:
            raise NotAllowed("a device may declare friendship for its own owner only; name that owner first")
        checks.finite("strength", strength, least=0, most=1)
        if owner_a == owner_b:
            raise InvalidField("friendship needs two different owners")
        now = self._clock.now()
        async with self._database.writing() as tx:
            a, b = await known_owner(tx, owner_a), await known_owner(tx, owner_b)
            low, high = min(a.number, b.number), max(a.number, b.number)
            said = await relations.friendship(tx, low, high) or Friendship(low, high, 0.0, 0.0, now)
            both = caller.role != "device" or strength == 0
            friendship = Friendship(
                low,
                high,
                strength if both or a.number == low else said.low_strength,
                strength if both or a.number == high else said.high_strength,
                now,
            )
            await relations.set_friendship(tx, friendship)
            act = "confirmed by both" if friendship.confirmed else "not confirmed"
            await audit.note(tx, now, "friendship.declare", f"{owner_a},{owner_b}", f"strength {strength:g}, {act}")
        return friendship

    async def friendships(self, owner_id: str, wanted: Page) -> tuple[int, list[tuple[int, str, Friendship]]]:
        """An owner's friendships, also those one side has yet to confirm: the owner's number, and each with the other
        owner's number and id."""
        caller = require_role("admin", "device")
        if caller.role == "device" and caller.owner_id != owner_id:
            raise NotAllowed("a device may list its own owner's friendships only")
        async with self._database.reading() as tx:
            owner = await known_owner(tx, owner_id)
            return owner.number, await relations.friendships_of(tx, owner.number, wanted)

    async def derive(self, kinds: Sequence[str]) -> dict[str, int]:
        """Derives stored relations anew (all kinds, or some) and counts every kind."""
        require_role("admin")
        wanted = {named(kind) for kind in kinds} or set(KINDS)
        chosen = [kind for kind in STORED_KINDS if kind in wanted]
        now = self._clock.now()
        async with self._database.writing(offload=True) as tx:
            await social.locked(tx)
            derived = await self._encountering.anew(tx, chosen, now)
            counted = await relations.counts(tx)
            await audit.note(tx, now, "relations.derive", ",".join(kinds) or "all", f"{derived} derived")
        return {kind: number for kind, number in counted.items() if kind in wanted}

    async def page(self, device_id: str, wanted: Page) -> tuple[list[tuple[int, SocialRelation]], dict[int, Entry]]:
        """A device's relations, each with the cursor behind it, and the devices they name."""
        require_device(device_id)
        await self._sight.note("relations", device_id)
        async with self._database.reading() as tx:
            (device,) = await self._directory.require(tx, device_id)
            result = await relations.of_device(tx, device.number, wanted)
            named = {number for _, item in result for number in (item.a, item.b)}
            return result, await self._directory.named(tx, named)

    async def related(self, device_ids: Sequence[str], kinds: Sequence[str], at: float) -> list[tuple[int, int]]:
        """Pairs of the devices, by place, that are related in one of these ways since `at` (0 = now) or before."""
        require_role()
        checks.at_most("devices", len(device_ids), MOST_RELATED)
        wanted = {named(kind).value for kind in kinds}
        async with self._database.reading(offload=True) as tx:
            places = {entry.number: p for p, entry in enumerate(await self._directory.require(tx, *device_ids))}
            result = await relations.every_pair(tx, at or None, list(places))
        pairs = {(places[low], places[high]) for low, high, kind, _ in result if kind in wanted}
        return sorted({(min(pair), max(pair)) for pair in pairs})

    async def declared(self, device_ids: Sequence[str]) -> Declared:
        """How close the owners of these devices say they are, in both directions of every friendship that holds."""
        require_role()
        checks.at_most("devices", len(device_ids), MOST_DECLARED)
        async with self._database.reading() as tx:
            entries = await self._directory.require(tx, *device_ids)
            places: dict[int, int] = {}
            owners = [places.setdefault(entry.owner_number, len(places)) for entry in entries]
            held = await relations.held_friendships(tx, list(places))
        said = [
            end
            for item in held
            for end in (
                (places[item.low], places[item.high], item.low_strength),
                (places[item.high], places[item.low], item.high_strength),
            )
        ]
        return Declared(owners, sorted(said))
