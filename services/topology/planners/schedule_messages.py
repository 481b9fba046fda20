"""A round's schedule in words and messages: where each device sits, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as pb
from services.topology.domain.scheduling import NO_STATION, Cells, Floats
from services.topology.domain.scheduling_policies import Schedule
from services.topology.planners.cell_network import reached


@dataclass(frozen=True, slots=True, eq=False)
class ScheduledRound:
    """Who is served, by index of device. stations: as registered.  delay: (station, device, block), seconds."""

    stations: list[pb.Cell]
    cells: Cells
    delay: Floats
    schedule: Schedule
    multiplier: Floats

    def assignment(self, i: int, device_id: str) -> pb.Assignment:
        """The place of one device."""
        station, block = int(self.schedule.station[i]), int(self.schedule.block[i])
        if station == NO_STATION:
            return pb.Assignment(
                device_id=device_id, role=words.ROLE_IDLE, group=-1, block=-1, because=self._why_idle(i)[1]
            )
        cell, seconds, multiplier = self.stations[station], self.delay[station, i, block], float(self.multiplier[i])
        cost = f", ρ = {2.0 / multiplier**2:.3g} this round" if multiplier else ""
        return pb.Assignment(
            device_id=device_id,
            role=words.ROLE_SOLO,
            group=station,
            block=block,
            upload_seconds=float(seconds),
            noise_multiplier=multiplier,
            cell=cell.id,
            because=f"served by {cell.id} on block {block}: {seconds:.3f} s of {cell.delay_limit_seconds:g} s{cost}",
        )

    def explain_empty(self, participants: int) -> str:
        """Why not a single one of the participants is served."""
        kinds = Counter(self._why_idle(i)[0] for i in range(len(self.cells.layout.users)))
        kinds["of unknown position"] = participants - len(self.cells.layout.users)
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()) if count)
        return f"no cell can serve any of the {participants} devices ({counts}); add cells, or bring devices closer"

    def _why_idle(self, i: int) -> tuple[str, str]:
        """The reason in a few words, and in a sentence."""
        user, distance = self.cells.layout.users[i], self.cells.layout.distances()[:, i]
        if user.samples == 0:
            return "without data", "it has no data for any model"
        if not reached(self.stations, self.cells.layout)[:, i].any():
            near = int(np.argmin(distance))
            cell = self.stations[near]
            where = f"{cell.id}, the nearest cell, is {distance[near]:.0f} m away and serves {cell.radius_metres:g} m"
            return "out of range", f"out of range: {where}"
        if not self.cells.handled[:, i].any():
            return "of a model no cell in range serves", f"no cell in range serves its model {user.task}"
        if self.schedule.device_status[i] == "out of range":
            usable = np.where(self.cells.handled[:, i, None], self.delay[:, i], np.inf).min(axis=1)
            best = int(np.argmin(usable))
            cell = self.stations[best]
            what = f"{usable[best]:.3f} s to {cell.id}, which allows {cell.delay_limit_seconds:g} s"
            return "over the delay limit", f"over the delay limit: {what}"
        if self.schedule.device_status[i] == "crowded out":
            return "without a block", "no block left: those it could use went to others"
        return "left out by the policy", "the policy left it out, though a block was free"


def unplaced(device_id: str) -> pb.Assignment:
    """The assignment of a device without a known position."""
    why = "its position is not known: set it with PATCH /v1/devices/{id} (location)"
    return pb.Assignment(device_id=device_id, role=words.ROLE_IDLE, group=-1, block=-1, because=why)
