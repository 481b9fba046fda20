"""Bulk imports: devices, interactions and relations, chunk by chunk, resumable after the last stored line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from coterie.records.enums import DeviceState
from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.errors import CoterieError
from services.kit.rpc.principal import require_role
from services.kit.runtime.clock import Clock
from services.kit.runtime.ids import new_id
from services.trust.domain import checks, reports
from services.trust.domain.kinds import require_kind
from services.trust.domain.records import (
    Basis,
    Device,
    DeviceRow,
    ImportState,
    Owner,
    Profile,
    PublicKeys,
    RelationRow,
)
from services.trust.domain.reports import PLATFORM, Reports
from services.trust.errors import BadImport, InvalidField, UnknownImport
from services.trust.store import audit, devices, imports, owners, relations
from services.trust.usecases.recording import Recording

MOST_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows in file order: `lines` of all, devices and relations by name, interactions by column."""

    lines: list[int]
    devices: list[DeviceRow]
    interactions: Reports
    interaction_lines: list[int]
    relations: list[RelationRow]


class Imports:
    """Runs imports."""

    def __init__(self, database: Database, clock: Clock, recording: Recording) -> None:
        self._database = database
        self._clock = clock
        self._recording = recording

    async def run(self, header: ImportState, chunks: AsyncIterator[Chunk], *, public: bool = False) -> ImportState:
        """Store chunk after chunk, each in one transaction, skipping lines that an earlier run stored.

        `public` marks the import's owner as public, such as the municipality of a city.
        """
        require_role("admin")
        checks.require_text("name", header.name, least=1, most=60)
        checks.require_text("owner_name", header.owner_name, least=1)
        now = self._clock.now()
        async with self._database.writing(offload=True) as tx:
            await imports.begin(tx, header, now)
            await audit.note(tx, now, "import", header.name, f"devices of {header.owner_name}")
            state = await self._known(tx, header.name)
            if public and state.owner_name == header.owner_name:
                result = await owners.ensure(tx, {header.owner_name: new_id("own")}, now)
                await owners.set_public(tx, result[header.owner_name].number)
        if state.owner_name != header.owner_name:
            raise InvalidField(f"import {header.name!r} belongs to owner {state.owner_name!r}; name it to resume")
        names: dict[str, int] = {}
        async for chunk in chunks:
            checks.require_at_most("rows in a chunk", len(chunk.lines), MOST_ROWS)
            state = await self._store(header.name, chunk, names)
        return state

    async def get(self, name: str) -> ImportState:
        """Return the progress of an import."""
        require_role("admin")
        checks.require_text("name", name, least=1)
        async with self._database.reading() as tx:
            return await self._known(tx, name)

    async def _known(self, tx: Tx, name: str) -> ImportState:
        state = await imports.by_name(tx, name)
        if state is None:
            raise UnknownImport(f"no import {name!r}; start it first")
        return state

    async def _store(self, name: str, chunk: Chunk, names: dict[str, int]) -> ImportState:
        now = self._clock.now()
        fresh = dict(names)  # adopted only after the commit
        async with self._database.writing(offload=True) as tx:
            state = await imports.by_name(tx, name, for_update=True)
            assert state is not None  # begun by this very run
            rest = _named(_behind(chunk, state.last_line), name)
            if not rest.lines:
                return state
            resolver = _DeviceResolver(tx, state, fresh, now)
            await resolver.create(rest.devices)
            await resolver.resolve({*rest.interactions.devices_a, *rest.interactions.devices_b})
            await resolver.resolve({end for row in rest.relations for end in (row.a, row.b)})
            recorded = await self._record(tx, rest, fresh, now)
            related = await relations.add(tx, [_relation_row(row, fresh, now) for row in rest.relations])
            state = replace(
                state,
                last_line=max(rest.lines),
                devices=state.devices + resolver.created,
                interactions=state.interactions + recorded,
                relations=state.relations + related,
            )
            await imports.save(tx, state, now)
        names.update(fresh)
        return state

    async def _record(self, tx: Tx, chunk: Chunk, names: dict[str, int], now: float) -> int:
        if not len(chunk.interactions):
            return 0
        ends = await asyncio.to_thread(reports.check, chunk.interactions, names, PLATFORM, now, chunk.interaction_lines)
        return (
            await self._recording.write(tx, chunk.interactions, ends=ends, reporter=0, source=Basis.ADMIN, now=now)
        ).new


class _DeviceResolver:
    """Finds and creates the devices of one chunk by name, inside its transaction."""

    def __init__(self, tx: Tx, state: ImportState, names: dict[str, int], now: float) -> None:
        self.created = 0
        self._tx = tx
        self._state = state
        self._names = names
        self._now = now
        self._owners: dict[str, Owner] = {}

    async def create(self, rows: Sequence[DeviceRow]) -> None:
        """Create the devices that do not exist yet."""
        for row in rows:
            with _at_line(row.line):
                checks.require_profile(row.profile)
                checks.require_text("owner_name", row.owner_name)
        await self._make([(row.profile, row.owner_name or self._state.owner_name) for row in rows])

    async def resolve(self, wanted: set[str]) -> None:
        """Find devices by name, the import's own owner's first; create unknown ones under that owner."""
        missing = sorted(wanted - self._names.keys())
        own = (await self._known([self._state.owner_name]))[self._state.owner_name].number
        result: dict[str, list[tuple[int, int]]] = {}
        for name in missing:
            checks.require_text("device name", name, least=1)
        for number, name, owner in await devices.named(self._tx, missing):
            result.setdefault(name, []).append((number, owner))
        for name, holders in result.items():
            own_devices = [number for number, owner in holders if owner == own]
            if not own_devices and len(holders) > 1:
                raise BadImport(f"{len(holders)} owners have a device named {name!r}; rename the device in the import")
            self._names[name] = own_devices[0] if own_devices else holders[0][0]
        await self._make([(Profile(name), self._state.owner_name) for name in missing if name not in result])

    async def _make(self, wanted: Sequence[tuple[Profile, str]]) -> None:
        known = await self._known([owner for _, owner in wanted])
        new = [(self._device(profile, known[owner]), known[owner].number) for profile, owner in wanted]
        self.created += await devices.add_many(self._tx, new)
        names = list(dict.fromkeys(profile.name for profile, _ in wanted))
        stored = {(o, name): number for number, name, o in await devices.named(self._tx, names)}
        for profile, owner in wanted:
            number = stored[known[owner].number, profile.name]
            if self._names.setdefault(profile.name, number) != number:
                raise BadImport(f"two devices of this import are named {profile.name!r}; rename one of them")

    def _device(self, profile: Profile, owner: Owner) -> Device:
        return Device(
            number=0,
            id=new_id("dev"),
            owner_id=owner.id,
            profile=profile,
            keys=PublicKeys(),
            state=DeviceState.ACTIVE,
            registered_at=self._now,
            last_seen_at=0.0,
            key_version=0,
            token_id="",
        )

    async def _known(self, names: Sequence[str]) -> dict[str, Owner]:
        missing = {name: new_id("own") for name in names if name not in self._owners}
        if missing:
            self._owners.update(await owners.ensure(self._tx, missing, self._now))
        return self._owners


@contextmanager
def _at_line(line: int) -> Iterator[None]:
    """Name the line in any error raised inside."""
    try:
        yield
    except CoterieError as error:
        raise BadImport(f"line {line}: {error.message}", details={"line": str(line)}) from error


def _behind(chunk: Chunk, last_line: int) -> Chunk:
    """Return the rows of a chunk that are not stored yet."""
    if list(chunk.lines) != sorted(set(chunk.lines)) or (chunk.lines and chunk.lines[0] < 1):
        raise BadImport("line numbers must increase from 1; number the rows as in the file")
    if not chunk.lines or chunk.lines[0] > last_line:
        return chunk
    retained = [k for k, line in enumerate(chunk.interaction_lines) if line > last_line]
    columns = {name: [getattr(chunk.interactions, name)[k] for k in retained] for name in Reports.__dataclass_fields__}
    return Chunk(
        [line for line in chunk.lines if line > last_line],
        [row for row in chunk.devices if row.line > last_line],
        Reports(**columns),
        [chunk.interaction_lines[k] for k in retained],
        [row for row in chunk.relations if row.line > last_line],
    )


def _named(chunk: Chunk, name: str) -> Chunk:
    """Return the chunk with an id for every interaction: its own, or the import's name and the line."""
    ids = [
        given or f"{name}:{line}" for given, line in zip(chunk.interactions.ids, chunk.interaction_lines, strict=True)
    ]
    return replace(chunk, interactions=replace(chunk.interactions, ids=ids))


def _relation_row(row: RelationRow, names: dict[str, int], now: float) -> dict[str, Any]:
    with _at_line(row.line):
        kind = require_kind(row.kind)
        checks.require_finite("strength", row.strength, least=0, most=1)
        checks.require_finite("since", row.since, least=0)
        checks.require_text("because", row.because, most=500)
        a, b = names[row.a], names[row.b]
        if a == b:
            raise InvalidField(f"{row.a!r} cannot be related to itself")
    return {
        "kind": kind.value,
        "low": min(a, b),
        "high": max(a, b),
        "strength": row.strength or 1.0,
        "because": row.because or "imported",
        "since": row.since or now,
        "source": "imported",
    }
