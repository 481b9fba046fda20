"""Open rounds as this replica holds them in memory: whose work is waiting, and the sums folded so far.

Everything here can be rebuilt from the database and the blob store; losing it costs time, never a result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from coterie.records.words import Form, ParticipationState
from services.aggregation.domain.accumulator import Accumulator
from services.aggregation.domain.layout import Layout
from services.aggregation.domain.records import Delivery, Participation, Round, Task
from services.aggregation.domain.rules.choice import choose
from services.aggregation.store.library import Library, UpdateReader
from services.aggregation.ways import way_for
from services.aggregation.ways.base import Update


class LiveRound:
    """An open round on this replica."""

    def __init__(
        self, task: Task, round_: Round, participations: Sequence[Participation], bases: Sequence[tuple[str, int]]
    ) -> None:
        self.task = task
        self.round = round_
        self.bases = tuple(bases)
        self.way = way_for(task.specification)
        self.choice = choose(task.specification.rule, task.specification.parameters_json)
        self.roster = self.way.muster(participations, round_.attempt)
        self.folded: dict[str, Delivery] = {}
        self._holders: dict[str, str] = {}
        self.lock = asyncio.Lock()
        self._sums: dict[int, Accumulator] = {}

    @property
    def pending(self) -> int:
        """Participants that may still deliver."""
        return self._count(ParticipationState.ASSIGNED)

    @property
    def is_waiting(self) -> bool:
        """Whether somebody may still deliver; cheaper than counting them."""
        assigned = ParticipationState.ASSIGNED
        return any(self.way.state_of(self.roster, device) is assigned for device in self.roster.states)

    @property
    def delivered(self) -> int:
        """Participants whose work counts."""
        return self._count(ParticipationState.DELIVERED)

    @property
    def unbearable(self) -> str:
        """Why the task's rule cannot combine what came so far; empty when it can."""
        seen = self.way.visible(self.roster)
        if not self.choice.by_trust:
            return self.choice.rule.why_not(len(seen))
        trusted = sum(self.roster.items[device].say > 0 for device in seen)
        return self.choice.rule.why_not(trusted) if trusted or not seen else "nobody who delivered is trusted"

    def _count(self, state: ParticipationState) -> int:
        return sum(self.way.state_of(self.roster, device) is state for device in self.roster.states)

    @property
    def max_update_bytes(self) -> int:
        """Largest update taken: the model's size and room for another header."""
        return max(size for _, size in self.bases) + 65_536

    def take(self, library: Library, delivery: Delivery) -> dict[str, float]:
        """Inspects a delivery and folds it in; what was measured. Call from a worker thread, under the lock."""
        read = UpdateReader(library.blobs, delivery)
        layout, total = read.layout(), self.sum_of(library, delivery.model_index)
        measured = self.way.inspect(
            Update(
                delivery,
                self.roster.items[delivery.device_id],
                self.roster.samples[delivery.device_id],
                layout,
                read,
                total.layout.elements,
                is_copy=self._holders.get(delivery.digest, delivery.device_id) != delivery.device_id,
            )
        )
        self._fold(total, layout, read, delivery)
        return measured

    def fold(self, library: Library, delivery: Delivery) -> None:
        """Adds a delivery that was taken before, here or elsewhere; call from a worker thread, under the lock."""
        read = UpdateReader(library.blobs, delivery)
        self._fold(self.sum_of(library, delivery.model_index), read.layout(), read, delivery)

    def _fold(self, total: Accumulator, layout: Layout, read: UpdateReader, delivery: Delivery) -> None:
        total.fold(layout, read, delivery.weight, is_sum=delivery.form is Form.SUM)
        self.folded[delivery.device_id] = delivery
        self._holders.setdefault(delivery.digest, delivery.device_id)

    def unfold(self, library: Library, delivery: Delivery) -> None:
        """Takes a delivery out again; call from a worker thread, under the lock."""
        read = UpdateReader(library.blobs, delivery)
        total = self._sums[delivery.model_index]
        total.unfold(read.layout(), read, delivery.weight, is_sum=delivery.form is Form.SUM)
        del self.folded[delivery.device_id]
        if self._holders.get(delivery.digest) == delivery.device_id:
            del self._holders[delivery.digest]

    def sum_of(self, library: Library, line: int) -> Accumulator:
        """The sum of a model line, begun when first asked for."""
        if line not in self._sums:
            layout = library.layout(*self.bases[line])
            self._sums[line] = self.way.begin_sum(layout, self.round.scale, len(self.roster.items))
        return self._sums[line]

    def sums(self) -> dict[int, Accumulator]:
        """Sums begun so far, by model line."""
        return dict(self._sums)

    def close(self) -> None:
        """Gives all sums back."""
        for total in self._sums.values():
            total.close()
        self._sums.clear()
