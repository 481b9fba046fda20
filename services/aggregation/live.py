"""Open rounds as this replica holds them in memory: whose work is waiting, and the sums folded so far.

Everything here can be rebuilt from the database and the blob store; losing it costs time, never a result.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.aggregation.assignment import heads_of
from services.aggregation.domain.accumulator import WINDOW, Accumulator
from services.aggregation.domain.clusters import effective_state
from services.aggregation.domain.layout import PREFIX_BYTES, Layout, header_length, parse
from services.aggregation.domain.plausibility import check_noise_left, check_norm, norm_of
from services.aggregation.domain.records import Delivery, Participation, Round, Task
from services.aggregation.errors import BadUpdate
from services.kit.blobs import BlobStore
from services.kit.errors import InvalidInput


class Library:
    """Layouts of stored models, read once."""

    def __init__(self, blobs: BlobStore) -> None:
        self.blobs = blobs
        self._cached = lru_cache(maxsize=256)(self._read)

    def layout(self, digest: str, size_bytes: int) -> Layout:
        """Layout of a stored file; call from a worker thread."""
        return self._cached(digest, size_bytes)

    def _read(self, digest: str, size_bytes: int) -> Layout:
        prefix = bytes(self.blobs.read(digest, 0, min(PREFIX_BYTES, size_bytes)))
        length = header_length(prefix, size_bytes)
        return parse(bytes(self.blobs.read(digest, PREFIX_BYTES, length)), size_bytes)

    def header(self, digest: str, layout: Layout) -> bytes:
        """Everything before a stored file's first tensor."""
        return bytes(self.blobs.read(digest, 0, layout.header_bytes))


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

    def _refuse_free_ride(self, delivery: Delivery, layout: Layout, read: _Reader) -> None:
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
        read = _Reader(library.blobs, delivery)
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
        read = _Reader(library.blobs, delivery)
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


class _Reader:
    """Reads a stored update; one that fits a single read is read once."""

    SMALL = 4 << 20

    def __init__(self, blobs: BlobStore, delivery: Delivery) -> None:
        self._blobs, self._digest, self._size = blobs, delivery.digest, delivery.size_bytes
        self._whole = blobs.read(self._digest, 0, self._size) if self._size <= self.SMALL else None

    def layout(self) -> Layout:
        """Where the update's tensors lie; raises BadUpdate when it is no sound safetensors file."""
        try:
            length = header_length(bytes(self(0, min(PREFIX_BYTES, self._size))), self._size)
            return parse(bytes(self(PREFIX_BYTES, length)), self._size)
        except InvalidInput as error:
            raise BadUpdate(f"the update is not a sound safetensors file: {error.message}") from error

    def __call__(self, start: int, length: int) -> memoryview:
        if self._whole is not None:
            return self._whole[start : start + length]
        return self._blobs.read(self._digest, start, length)


def write_partial(total: Accumulator) -> Iterator[bytes]:
    """A sum as bytes for another replica: little-endian int64, a window at a time, after their number."""
    yield struct.pack("<q", total.layout.elements)
    for piece in total.pieces():
        yield piece.astype("<i8").tobytes()


def read_partial(blobs: BlobStore, digest: str) -> Iterator[npt.NDArray[np.int64]]:
    """The reverse of `write_partial`."""
    (elements,) = struct.unpack("<q", blobs.read(digest, 0, 8))
    for start in range(0, elements, WINDOW):
        count = min(WINDOW, elements - start)
        yield np.frombuffer(blobs.read(digest, 8 + start * 8, count * 8), "<i8").astype(np.int64)
