"""Valuing a round: which coalitions its publisher is asked about, and their models, without training anew.

Every update is a row of whole numbers, the very terms of the round's sum, so a coalition's sum is exact: the model of
everybody has the bits of the round's own, and leaving a device out is a subtraction.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from coterie.records.words import Form, ParticipationState
from services.aggregation.domain import moving
from services.aggregation.domain.accumulator import Accumulator, weight_of
from services.aggregation.domain.contribution import Inquiry, Mask, members
from services.aggregation.domain.layout import DTYPES, PREFIX_BYTES, Layout
from services.aggregation.domain.records import Participation, Round, Task
from services.aggregation.rounds.closing import delivery_of
from services.aggregation.rounds.live import LiveRound
from services.aggregation.store.library import Library, UpdateReader
from services.aggregation.ways.base import VISIBLE

IN_MEMORY = 1 << 24
"""Numbers of all updates together that are held in memory; more lie in a nameless file."""
BATCH_BYTES = 64 << 20
BATCH_MODELS = 64
EVALUATIONS = 2000


@dataclass(slots=True)
class Valuation:
    """A round that is being valued: its players, their updates as terms, and what is asked."""

    players: list[str]
    inquiry: Inquiry
    library: Library
    base: tuple[str, int]
    scale: int
    terms: npt.NDArray[np.int64]
    units: list[int]
    asked: dict[str, list[Mask]] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        return self.library.layout(*self.base)

    def ask(self) -> tuple[str, int, int]:
        """Digest, size and number of the next models to be evaluated, stored; ("", 0, 0) when all is known."""
        masks = self.inquiry.questions()[: max(1, min(BATCH_MODELS, BATCH_BYTES // self.base[1]))]
        if not masks:
            return "", 0, 0
        digest, size = self.library.blobs.put_pieces(self._models(masks))
        self.asked[digest] = masks
        return digest, size, len(masks)

    def _models(self, masks: Sequence[Mask]) -> Iterator[bytes]:
        """A file with the models of these coalitions, stacked."""
        layout = self.layout
        yield _header(layout, len(masks))
        for tensor in layout.tensors:
            for mask in masks:
                for start in range(0, tensor.elements, moving.WINDOW):
                    stop = min(start + moving.WINDOW, tensor.elements)
                    values = moving.read_values(tensor, self._read, start, stop)
                    moved = values + self._change(mask, tensor.offset + start, tensor.offset + stop)
                    yield moved.astype(DTYPES[tensor.dtype]).tobytes()

    def _read(self, start: int, length: int) -> memoryview:
        return self.library.blobs.read(self.base[0], start, length)

    def _change(self, mask: Mask, start: int, stop: int) -> npt.NDArray[np.float64]:
        """The mean change of a coalition, as the round's sum would make it; nobody changes nothing."""
        chosen = members(mask)
        if not chosen:
            return np.zeros(stop - start)
        total = self.terms[chosen, start:stop].sum(axis=0)
        return np.asarray(total / 2.0**self.scale / weight_of(sum(self.units[i] for i in chosen)))


def begin(
    library: Library,
    task: Task,
    round_: Round,
    everybody: Sequence[Participation],
    base: tuple[str, int],
    evaluations: int,
) -> Valuation:
    """Takes a round up, with every visible update as a player; call from a worker thread."""
    found = sorted(
        (p for p in everybody if p.state is ParticipationState.DELIVERED and p.form in VISIBLE),
        key=lambda p: p.device_id,
    )
    live = LiveRound(task, round_, everybody, [base])
    layout = library.layout(*base)
    terms = _room(len(found), layout.elements)
    units = []
    for row, participation in zip(terms, found, strict=True):
        alone = Accumulator(layout, round_.scale, len(everybody))
        try:
            delivery = delivery_of(participation)
            read = UpdateReader(library.blobs, delivery)
            is_sum, discount = participation.form is Form.SUM, live.discount(participation.staleness)
            alone.fold(read.layout(), read, delivery.weight, is_sum=is_sum, discount=discount)
            np.concatenate(list(alone.pieces()), out=row)
            units.append(alone.weight_units)
        finally:
            alone.close()
    rng = np.random.default_rng([task.specification.seed, round_.number])
    inquiry = Inquiry(len(found), rng, max_evaluations=evaluations)
    return Valuation([p.device_id for p in found], inquiry, library, base, round_.scale, terms, units)


def _room(rows: int, columns: int) -> npt.NDArray[np.int64]:
    if rows * columns <= IN_MEMORY:
        return np.empty((rows, columns), np.int64)
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, np.int64, "w+", shape=(rows, columns))


def _header(layout: Layout, models: int) -> bytes:
    entries, at = {}, 0
    for tensor in layout.tensors:
        size = tensor.elements * DTYPES[tensor.dtype].itemsize * models
        shape = [models, *tensor.shape]
        entries[tensor.name] = {"dtype": tensor.dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries).encode()
    text += b" " * (-(len(text) + PREFIX_BYTES) % 8)
    return struct.pack("<Q", len(text)) + text
