"""Valuing a round: which coalitions its publisher is asked about, and their models, without training anew.

Every update is a row of whole numbers, the very terms of the round's sum, so a coalition's sum is exact: the model of
everybody has the bits of the round's own, and leaving a device out is a subtraction. Where updates went into secure
sums the rows are these sums, and a sum's value is shared out among its devices by their weights in it.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from coterie.records.enums import Form, ParticipationState
from services.aggregation.domain import model_steps
from services.aggregation.domain.accumulator import Accumulator, weight_of
from services.aggregation.domain.contribution import Contributions, Inquiry, Mask, members
from services.aggregation.domain.layout import DTYPES, PREFIX_BYTES, Layout
from services.aggregation.domain.records import Participation, Round, Task
from services.aggregation.domain.sum_sessions import SumSession
from services.aggregation.rounds.closing import delivery_of
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.secure_sums.unmasking import opened_sum
from services.aggregation.store.model_files import ModelFiles, UpdateReader
from services.aggregation.store.opened import OpenedSums
from services.aggregation.strategies import strategy_for
from services.aggregation.strategies.base import VISIBLE

Vector = npt.NDArray[np.float64]
IN_MEMORY = 1 << 24
"""Numbers of all updates together that are held in memory; more lie in a nameless file."""
BATCH_BYTES = 64 << 20
BATCH_MODELS = 64
EVALUATIONS = 2000


@dataclass(slots=True)
class Valuation:
    """A round that is being valued.

    Attributes
    ----------
    players : whose updates are valued together, each device with its part of what they are worth.
    change : elements from here to there of the mean change of some of the players, as the round's sum would make it.
    """

    players: list[dict[str, float]]
    inquiry: Inquiry
    model_files: ModelFiles
    base: tuple[str, int]
    change: Callable[[Sequence[int], int, int], Vector]
    asked: dict[str, list[Mask]] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        return self.model_files.layout(*self.base)

    @property
    def seen(self) -> str:
        """What the server sees and values, in words."""
        devices = sum(map(len, self.players))
        if devices == len(self.players):
            return f"{devices} updates, as the server sees them,"
        return (
            f"{len(self.players)} sums of {devices} devices, which is what the server sees (each device has its part "
            "of its sum's value by its weight there),"
        )

    def shared(self, found: Contributions) -> dict[str, tuple[float, float]]:
        """(value, error) of every device."""
        pairs = zip(self.players, found.values.tolist(), found.errors.tolist(), strict=True)
        return {device: (part * value, part * error) for parts, value, error in pairs for device, part in parts.items()}

    def ask(self) -> tuple[str, int, int]:
        """Digest, size and number of the next models to be evaluated, stored; ("", 0, 0) when all is known."""
        masks = self.inquiry.questions()[: max(1, min(BATCH_MODELS, BATCH_BYTES // self.base[1]))]
        if not masks:
            return "", 0, 0
        digest, size = self.model_files.blobs.put_pieces(self._models(masks))
        self.asked[digest] = masks
        return digest, size, len(masks)

    def _models(self, masks: Sequence[Mask]) -> Iterator[bytes]:
        """A file with the models of these coalitions, stacked."""
        layout = self.layout
        yield _header(layout, len(masks))
        for tensor in layout.tensors:
            for mask in masks:
                for start in range(0, tensor.elements, model_steps.WINDOW):
                    stop = min(start + model_steps.WINDOW, tensor.elements)
                    values = model_steps.read_values(tensor, self._read, start, stop)
                    moved = values + self._change(mask, tensor.offset + start, tensor.offset + stop)
                    yield moved.astype(DTYPES[tensor.dtype]).tobytes()

    def _read(self, start: int, length: int) -> memoryview:
        return self.model_files.blobs.read(self.base[0], start, length)

    def _change(self, mask: Mask, start: int, stop: int) -> Vector:
        """The mean change of a coalition; nobody changes nothing."""
        chosen = members(mask)
        return self.change(chosen, start, stop) if chosen else np.zeros(stop - start)


def begin(
    model_files: ModelFiles,
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
    live = OpenRound(task, round_, everybody, [base])
    layout = model_files.layout(*base)
    terms = _room(len(found), layout.elements)
    units = []
    for row, participation in zip(terms, found, strict=True):
        alone = Accumulator(layout, round_.scale, len(everybody))
        try:
            delivery = delivery_of(participation)
            read = UpdateReader(model_files.blobs, delivery)
            is_sum, discount = participation.form is Form.SUM, live.discount(participation.staleness)
            alone.fold(read.layout(), read, delivery.weight, is_sum=is_sum, discount=discount)
            np.concatenate(list(alone.pieces()), out=row)
            units.append(alone.weight_units)
        finally:
            alone.close()

    def change(chosen: Sequence[int], start: int, stop: int) -> Vector:
        total = terms[chosen, start:stop].sum(axis=0)
        return np.asarray(total / 2.0**round_.scale / weight_of(sum(units[i] for i in chosen)))

    inquiry = _inquiry(task, round_, len(found), evaluations)
    return Valuation([{p.device_id: 1.0} for p in found], inquiry, model_files, base, change)


def begin_sums(
    model_files: ModelFiles,
    task: Task,
    round_: Round,
    everybody: Sequence[Participation],
    sum_sessions: Iterable[SumSession],
    base: tuple[str, int],
    evaluations: int,
) -> Valuation:
    """Takes a round of secure sums up, with every opened sum as a player."""
    by_device = {p.device_id: p for p in everybody}
    told, counts = (
        [session for session in sum_sessions if session.opened],
        strategy_for(task.specification).secure_sums.extra_elements,
    )
    rows = OpenedSums(model_files.blobs, [opened_sum(session, by_device, counts) for session in told])
    players = []
    for session in told:
        weights = {device: by_device[device].weight for device, _ in session.surviving}
        players.append({device: weight / sum(weights.values()) for device, weight in weights.items()})
    inquiry = _inquiry(task, round_, len(told), evaluations)
    return Valuation(players, inquiry, model_files, base, lambda some, start, stop: rows.only(some).mean(start, stop))


def _inquiry(task: Task, round_: Round, players: int, evaluations: int) -> Inquiry:
    rng = np.random.default_rng([task.specification.seed, round_.number])
    return Inquiry(players, rng, max_evaluations=evaluations)


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
