"""Value a round: the coalitions its publisher evaluates, and their models, without training again.

Every update is a row of integers, the terms of the round's sum, so a coalition's sum is exact: the grand coalition has
the round's own bits, and removing a device is a subtraction. With secure sums the rows are these sums, and the devices
of a sum share its value by their weights in it.
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
"""Elements of all updates together that stay in memory; more go into an unnamed temporary file."""
BATCH_BYTES = 64 << 20
BATCH_MODELS = 64
EVALUATIONS = 2000


@dataclass(slots=True)
class Valuation:
    """A round under valuation.

    Attributes
    ----------
    players : for each player, its devices with their shares of its value.
    change : (players, start, stop) → elements of these players' mean change, as the round's sum would make it.
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
        """Describe what the server sees and values."""
        devices = sum(map(len, self.players))
        if devices == len(self.players):
            return f"{devices} updates, as the server sees them,"
        return (
            f"{len(self.players)} sums of {devices} devices, which is what the server sees (each device has its part "
            "of its sum's value by its weight there),"
        )

    def shared(self, delivered: Contributions) -> dict[str, tuple[float, float]]:
        """Return (value, error) of every device."""
        pairs = zip(self.players, delivered.values.tolist(), delivered.errors.tolist(), strict=True)
        return {device: (part * value, part * error) for parts, value, error in pairs for device, part in parts.items()}

    def ask(self) -> tuple[str, int, int]:
        """Store the next models to evaluate; return digest, size and count, ("", 0, 0) when all are known."""
        masks = self.inquiry.questions()[: max(1, min(BATCH_MODELS, BATCH_BYTES // self.base[1]))]
        if not masks:
            return "", 0, 0
        digest, size = self.model_files.blobs.put_pieces(self._models(masks))
        self.asked[digest] = masks
        return digest, size, len(masks)

    def _models(self, masks: Sequence[Mask]) -> Iterator[bytes]:
        """Yield a file with the stacked models of these coalitions."""
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
        """Return the mean change of a coalition; zero for the empty one."""
        chosen = members(mask)
        return self.change(chosen, start, stop) if chosen else np.zeros(stop - start)


def begin(
    model_files: ModelFiles,
    task: Task,
    round_: Round,
    participations: Sequence[Participation],
    base: tuple[str, int],
    evaluations: int,
) -> Valuation:
    """Begin the valuation of a round, with every visible update as a player; call from a worker thread."""
    delivered = sorted(
        (p for p in participations if p.state is ParticipationState.DELIVERED and p.form in VISIBLE),
        key=lambda p: p.device_id,
    )
    open_round = OpenRound(task, round_, participations, [base])
    layout = model_files.layout(*base)
    terms = _room(len(delivered), layout.elements)
    units = []
    for row, participation in zip(terms, delivered, strict=True):
        alone = Accumulator(layout, round_.scale, len(participations))
        try:
            delivery = delivery_of(participation)
            read = UpdateReader(model_files.blobs, delivery)
            is_sum, discount = participation.form is Form.SUM, open_round.discount(participation.staleness)
            alone.fold(read.layout(), read, delivery.weight, is_sum=is_sum, discount=discount)
            np.concatenate(list(alone.pieces()), out=row)
            units.append(alone.weight_units)
        finally:
            alone.close()

    def change(chosen: Sequence[int], start: int, stop: int) -> Vector:
        total = terms[chosen, start:stop].sum(axis=0)
        return np.asarray(total / 2.0**round_.scale / weight_of(sum(units[i] for i in chosen)))

    inquiry = _inquiry(task, round_, len(delivered), evaluations)
    return Valuation([{p.device_id: 1.0} for p in delivered], inquiry, model_files, base, change)


def begin_sums(
    model_files: ModelFiles,
    task: Task,
    round_: Round,
    participations: Sequence[Participation],
    sum_sessions: Iterable[SumSession],
    base: tuple[str, int],
    evaluations: int,
) -> Valuation:
    """Begin the valuation of a round of secure sums, with every unmasked sum as a player."""
    by_device = {p.device_id: p for p in participations}
    unmasked, counts = (
        [session for session in sum_sessions if session.opened],
        strategy_for(task.specification).secure_sums.extra_elements,
    )
    rows = OpenedSums(model_files.blobs, [opened_sum(session, by_device, counts) for session in unmasked])
    players = []
    for session in unmasked:
        weights = {device: by_device[device].weight for device, _ in session.surviving}
        players.append({device: weight / sum(weights.values()) for device, weight in weights.items()})
    inquiry = _inquiry(task, round_, len(unmasked), evaluations)
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
