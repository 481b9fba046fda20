"""Figures of the evidence rule: what honest pairs earn, and what liars gain. The table of docs/explanation/trust.md.

    python bench/trust_evidence.py

Every figure comes out of the registry's own use cases on a fresh database: reports of devices in their own names,
rounds of the platform, new devices. Only the clock is made up. About a minute.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import combinations, count, product
from pathlib import Path

import numpy as np

from coterie.records.enums import DeviceState
from services.kit.database.engine import Database
from services.kit.rpc.principal import SERVICE, Principal, acting_as
from services.kit.runtime.ids import new_id
from services.trust.domain.parameters import DAY_SECONDS, LIVE, TrustParameters
from services.trust.domain.records import Device, Profile, PublicKeys
from services.trust.domain.relations import DEFAULT_RULES
from services.trust.domain.reports import Reports
from services.trust.domain.scores import Interaction, direct_trust
from services.trust.settings import TrustSettings
from services.trust.store import devices, owners
from services.trust.usecases.directory import Directory
from services.trust.usecases.encounters import Encountering
from services.trust.usecases.inheritance import Inheritance
from services.trust.usecases.recording import Recording
from services.trust.usecases.scores import Scores
from services.trust.usecases.trust_cache import TrustCache
from services.trust.usecases.visibility import Visibility

START, HOUR, THRESHOLD = 1_800_000_000.0 // DAY_SECONDS * DAY_SECONDS, 3_600.0, 0.7
HONEST, SYBILS = 40, 60


class Hand:
    """A clock that the figures move."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> float:
        return self.time


class Registry:
    """The registry's use cases on a separate database."""

    def __init__(self, database: Database, settings: TrustSettings) -> None:
        self.clock, self.numbers = Hand(), count()
        self._database, self._directory = database, Directory()
        self._memory = TrustCache(self.clock, settings.trust_parameters, settings.evidence_rule)
        self._inheritance = Inheritance(self._memory)
        encountering = Encountering(DEFAULT_RULES)
        self._recording = Recording(database, self.clock, self._directory, self._memory, encountering)
        self._scores = Scores(
            database, self._directory, self._memory, Visibility(database, self.clock, self._directory)
        )

    async def prepare(self) -> None:
        """Makes the tables."""
        await self._database.migrate("services.trust")
        async with self._database.writing() as tx:
            await self._memory.prepare(tx)

    async def device(self, owner: str) -> str:
        """A new device of an owner."""
        now = self.clock.now()
        async with self._database.writing() as tx:
            (known,) = (await owners.ensure(tx, {owner: new_id("own")}, now)).values()
            profile = Profile(f"device {next(self.numbers)}")
            made = Device(0, new_id("dev"), known.id, profile, PublicKeys(), DeviceState.ACTIVE, now, 0.0, 1, "")
            await devices.add(tx, made, known.number)
            stored = await devices.by_id(tx, made.id)
            assert stored is not None
            await self._inheritance.hand_down(tx, stored.number, known.number, now)
        return made.id

    async def report(self, caller: Principal, pairs: Sequence[tuple[str, str, bool, float]]) -> None:
        """Reports of one caller: two devices, whether it went well, and when."""
        for start in range(0, len(pairs), 10_000):
            part = pairs[start : start + 10_000]
            size = len(part)
            batch = Reports(
                [f"{next(self.numbers)}" for _ in part],
                [a for a, *_ in part],
                [b for _, b, *_ in part],
                [good for *_, good, _ in part],
                [600.0] * size,
                [at for *_, at in part],
                [""] * size,
                ["meeting"] * size,
                [""] * size,
            )
            with acting_as(caller):
                await self._recording.record(batch)

    async def meet(self, a: str, b: str, *at: float) -> None:
        """Good meetings that both ends report."""
        for me in (a, b):
            await self.report(Principal("device", me), [(a, b, True, moment) for moment in at])

    async def trust(self, a: str, b: str) -> float:
        """Combined trust of two devices now."""
        with acting_as(SERVICE):
            return (await self._scores.explain(a, b, 0.0)).trust

    async def among(self, ids: Sequence[str]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """Combined trust among devices now."""
        with acting_as(SERVICE):
            entries, *_ = await self._scores.matrix(ids, 0.0, None, 0)
        result = np.zeros((len(ids), len(ids)))
        result[entries.rows, entries.columns] = result[entries.columns, entries.rows] = entries.trust
        return result


@asynccontextmanager
async def registry() -> AsyncIterator[Registry]:
    """A fresh one, gone at the end."""
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as folder:
        settings = TrustSettings(data_dir=Path(folder))
        database = Database(settings.database_for("trust"), "trust")
        try:
            made = Registry(database, settings)
            await made.prepare()
            yield made
        finally:
            await database.close()


async def until_trusted(room: Registry, a: str, b: str, a_day: int, most_days: int = 400) -> tuple[int, int]:
    """How many confirmed meetings, and on which day, lift a pair to the threshold; 0 when `most_days` are too few."""
    met = 0
    for day in range(most_days):
        for _ in range(a_day):
            room.clock.time += HOUR
            await room.meet(a, b, room.clock.time)
            met += 1
            if await room.trust(a, b) >= THRESHOLD:
                return met, day + 1
        room.clock.time += DAY_SECONDS - a_day * HOUR
    return 0, most_days


async def honest_pairs() -> list[tuple[str, str]]:
    """How fast trust comes, how it lasts, and how it goes."""
    rows = []
    async with registry() as room:
        a, b = await room.device("Ada"), await room.device("Bob")
        met, days = await until_trusted(room, a, b, 8)
        rows.append(("an honest pair, 8 meetings a day, to 0.7", f"{met} meetings, day {days}"))
        c, d = await room.device("Cem"), await room.device("Dana")
        met, days = await until_trusted(room, c, d, 1)
        rows.append(("an honest pair, one meeting a day, to 0.7", f"{met} meetings, day {days}"))
    async with registry() as room:
        a, b = await room.device("Ada"), await room.device("Bob")
        moments = []
        for _ in range(365):
            room.clock.time += DAY_SECONDS
            moments.append(room.clock.time)
            await room.meet(a, b, room.clock.time)
        rows.append(("a pair that meets daily, after a year", f"{await room.trust(a, b):.2f}"))
        paper = direct_trust([Interaction(True, 600.0, at) for at in moments], room.clock.time, TrustParameters())
        rows.append(("the same by eq (1), whose count never ages", f"{paper:.2f}"))
        for days in (30, 60, 180):
            room.clock.time = moments[-1] + days * DAY_SECONDS
            rows.append((f"{days} days after it stopped meeting", f"{await room.trust(a, b):.2f}"))
    return rows


async def liars() -> list[tuple[str, str]]:
    """What made-up reports, floods and showing up give."""
    rows = []
    async with registry() as room:
        stranger, victim = await room.device("Mallory"), await room.device("Ada")
        now = room.clock.time
        made_up = [(stranger, victim, True, now - 4 * HOUR * k) for k in range(12)]
        await room.report(Principal("device", stranger), made_up)
        rows.append(("a stranger's 12 made-up positives", f"{await room.trust(stranger, victim):.2f}"))
        lazy, other = await room.device("Lazy"), await room.device("Bob")
        await room.report(SERVICE, [(lazy, other, True, now)])
        rows.append(("one round done together, nothing else", f"{await room.trust(lazy, other):.2f}"))
        await room.report(SERVICE, [(lazy, other, True, now - 3 * HOUR * k) for k in range(1, 1_000)])
        rows.append(("1,000 rounds done together, nothing else", f"{await room.trust(lazy, other):.2f}"))
        villain, friend = await room.device("Villain"), await room.device("Cem")
        await room.meet(villain, friend, *(now - 4 * HOUR * k for k in range(20)))
        before = await room.trust(villain, friend)
        await room.report(Principal("device", friend), [(friend, villain, False, now - k) for k in range(50)])
        await room.report(Principal("device", villain), [(villain, friend, True, now - 5 * k) for k in range(8_000)])
        after = await room.trust(villain, friend)
        rows.append(("20 meetings, then 50 negatives against 8,000 own positives", f"{before:.2f} → {after:.2f}"))
    return rows


async def sybils(edges: int) -> tuple[str, str]:
    """Trust of honest devices in the sybils of one attacker who has `edges` real ties to honest devices."""
    async with registry() as room:
        honest = [await room.device(f"honest {k}") for k in range(HONEST)]
        false = [await room.device(f"false {k}") for k in range(SYBILS)]
        now = room.clock.time
        moments = [now - 4 * HOUR * k for k in range(20)]
        for k in range(HONEST):
            for step in (1, 2, 5):
                await room.meet(honest[k], honest[(k + step) % HONEST], *moments)
        for a, b in combinations(range(SYBILS), 2):
            if b - a in (1, 2, 3):
                await room.meet(false[a], false[b], *moments)
        for me in false:  # what each says of all honest devices, alone
            claims = [(me, other, True, now - HOUR * k) for other, k in product(honest, range(8))]
            await room.report(Principal("device", me), claims)
        for k in range(edges):
            await room.meet(honest[k * HONEST // max(edges, 1)], false[k], *moments)
        trust = (await room.among([*honest, *false]))[:HONEST, HONEST:]
    raw = f"{np.count_nonzero(trust >= THRESHOLD)} of {trust.size:,} pairs at 0.7 or more"
    return f"60 % sybils of one attacker, k = {edges}", f"mean {trust.mean():.3f}, largest {trust.max():.2f}, {raw}"


async def whitewashing() -> list[tuple[str, str]]:
    """What a new device gets of its owner's name."""
    rows = []
    async with registry() as room:
        victim, old, good = await room.device("Victim"), await room.device("Mallory"), await room.device("Honest")
        now = room.clock.time
        bad = [(victim, old, False, now - day * DAY_SECONDS - k) for day in range(3) for k in range(20)]
        await room.report(Principal("device", victim), bad)
        await room.meet(victim, good, *(now - 4 * HOUR * k for k in range(20)))
        fresh, unknown, heir = [await room.device(owner) for owner in ("Mallory", "Newcomer", "Honest")]
        begins = await room.trust(victim, heir)
        rows.append(("a new device of an owner who earned 0.79", f"begins with {begins:.2f}"))
        for name, device in (("of an unknown owner", unknown), ("of an owner with 24 bad meetings", fresh)):
            await room.report(SERVICE, [(victim, device, True, now - HOUR * k) for k in range(8)])
            rows.append((f"a new device {name}, after 8 rounds", f"{await room.trust(victim, device):.2f}"))
        met, days = await until_trusted(room, victim, unknown, 8)
        rows.append(("then confirmed meetings to 0.7, owner unknown", f"{met}, day {days}"))
        met, days = await until_trusted(room, victim, fresh, 8)
        rows.append(("then confirmed meetings to 0.7, owner with the bad name", f"{met}, day {days}"))
    return rows


async def measure() -> None:
    """Prints every figure as a row of the table."""
    print(f"| {'what happens':<62} | trust |\n|---|---|")
    rows = [*await honest_pairs(), *await liars()]
    rows += [await sybils(edges) for edges in (0, 1, 5)]
    rows += await whitewashing()
    for name, figure in rows:
        print(f"| {name:<62} | {figure} |")
    print(f"\nκ = {LIVE.prior_weight:g}, {LIVE.pair_day:g} a day of a pair, witness cap {LIVE.witness_cap:g}")


if __name__ == "__main__":
    asyncio.run(measure())
