"""Open rounds as this replica holds them in memory: whose work is waiting, and the sums folded so far.

Everything here can be rebuilt from the database and the blob store; losing it costs time, never a result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.aggregation.domain.accumulator import WINDOW, Accumulator
from services.aggregation.domain.clusters import effective_state
from services.aggregation.domain.layout import Layout
from services.aggregation.domain.plausibility import check_noise_left, check_norm, norm_of
from services.aggregation.domain.records import Delivery, Participation, Round, Task
from services.aggregation.errors import BadUpdate
from services.aggregation.rounds.assignment import heads_of
from services.aggregation.store.library import Library, UpdateReader


class LiveRound:
    """An open round on this replica."""

    def __init__(
        self, task: Task, round_: Round, participations: Sequence[Participation], bases: Sequence[tuple[str, int]]
    ) -> None:
        self.task = task
        self.round = round_
        self.bases = tuple(bases)
        self.items = {p.device_id: pb.WorkItem.FromString(p.work) for p in participations}
        self.states = {p.device_id: p.state for p in participations}
        self.samples = {p.device_id: p.samples for p in participations}
        self.head_of = heads_of(self.items)
        self.heard: dict[str, tuple[str, str]] = {}
        for p in participations:
            if p.state == "delivered":
                self.hear(p.device_id, p.members)
        self.folded: dict[str, Delivery] = {}
        self.norms: dict[str, float] = {}
        self.lock = asyncio.Lock()
        self._sums: dict[int, Accumulator] = {}

    @property
    def pending(self) -> int:
        """Participants that may still deliver."""
        return self._count("assigned")

    @property
    def delivered(self) -> int:
        """Participants that have delivered; members of a cluster with their head."""
        return self._count("delivered")

    def _count(self, state: str) -> int:
        if not self.head_of:
            return sum(found == state for found in self.states.values())
        return sum(self.state_of(device) == state for device in self.states)

    def state_of(self, device_id: str) -> str:
        """What a device's state amounts to: a member's depends on its head."""
        return effective_state(device_id, self.states, self.head_of, self.heard)

    def hear(self, head: str, members: Iterable[Mapping[str, object]]) -> None:
        """Takes note of what a head reports; what it says of others than its own members counts for nothing."""
        for report in members:
            member = str(report["device_id"])
            if self.head_of.get(member) == head:
                self.heard[member] = (str(report["outcome"]), str(report["note"]))

    @property
    def max_update_bytes(self) -> int:
        """Largest update taken: the model's size and room for another header."""
        return max(size for _, size in self.bases) + 65_536

    def _refuse_free_ride(self, delivery: Delivery, layout: Layout, read: UpdateReader) -> None:
        """Raises for an update of zeros, or another device's very update.

        Heads look at their members' updates; this is what the platform can see of heads and of devices alone.
        """
        if any(d.digest == delivery.digest and d.device_id != delivery.device_id for d in self.folded.values()):
            raise BadUpdate("the update is a copy of another device's; train on your own data")
        for place in range(layout.header_bytes, delivery.size_bytes, WINDOW):
            if np.frombuffer(read(place, min(WINDOW, delivery.size_bytes - place)), np.uint8).any():
                return
        raise BadUpdate("the update is zero everywhere; train before you deliver")

    def fold(self, library: Library, delivery: Delivery) -> None:
        """Adds a delivery's tensors to the sum of its model line; call from a worker thread, under the lock."""
        read = UpdateReader(library.blobs, delivery)
        layout = read.layout()
        total = self.sum_of(library, delivery.model_index)
        if self.task.specification.topology == "clusters":
            self._refuse_free_ride(delivery, layout, read)
            item = self.items[delivery.device_id]
            if item.role == "solo" and item.price_microcredits > 0:
                norm = norm_of(layout, read)
                check_noise_left(self.task.specification, item.noise_multiplier, delivery, total.layout.elements, norm)
        if self.task.specification.privacy == "priced":
            norm = norm_of(layout, read)
            samples = self.samples[delivery.device_id]
            check_norm(self.task.specification, delivery, samples, total.layout.elements, norm)
            self.norms[delivery.device_id] = norm
        total.fold(layout, read, delivery.weight, is_sum=delivery.form == "sum")
        self.folded[delivery.device_id] = delivery

    def unfold(self, library: Library, delivery: Delivery) -> None:
        """Takes a delivery out again; call from a worker thread, under the lock."""
        read = UpdateReader(library.blobs, delivery)
        total = self._sums[delivery.model_index]
        total.unfold(read.layout(), read, delivery.weight, is_sum=delivery.form == "sum")
        del self.folded[delivery.device_id]

    def sum_of(self, library: Library, line: int) -> Accumulator:
        """The sum of a model line, begun when first asked for."""
        if line not in self._sums:
            layout = library.layout(*self.bases[line])
            self._sums[line] = Accumulator(layout, self.round.scale, len(self.items))
        return self._sums[line]

    def sums(self) -> dict[int, Accumulator]:
        """Sums begun so far, by model line."""
        return dict(self._sums)

    def close(self) -> None:
        """Gives all sums back."""
        for total in self._sums.values():
            total.close()
        self._sums.clear()
