"""New models of a closing round: the change by the task's rule, and the step along it.

A plain mean is in the round's sums. Every other rule goes through the stored updates themselves, in the order of device
ids, and leaves the sums alone. All of it follows from what is stored, so a step taken again after a crash gives the
same bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import IO

import numpy as np
import numpy.typing as npt

from coterie.records.enums import ParticipationState
from services.aggregation.domain import model_steps
from services.aggregation.domain.records import Model, Participation
from services.aggregation.domain.rules.combining import Combination
from services.aggregation.domain.rules.optimisers import Optimiser
from services.aggregation.domain.rules.outlying import DISTANCE, distances_from, multiples
from services.aggregation.domain.rules.weighting import relative
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.store.model_files import ModelFiles
from services.aggregation.store.opened import OpenedSum, OpenedSums
from services.aggregation.store.updates import StoredUpdate, StoredUpdates
from services.aggregation.strategies.base import VISIBLE

Vector = npt.NDArray[np.float64]
Change = Callable[[], Iterable[Vector]]
"""A round's change of the model from its beginning, as often as it is asked for."""
NAMED = 3
"""Devices, or sums, set aside that an event names; the round's parts have all devices."""


@dataclass(slots=True)
class Made:
    """What a round made: (line, digest, size) of new models and states, and what the rule did with the updates.

    Attributes
    ----------
    excluded_because : devices whose update did not count, and why.
    away : how far each update lies from what the rule made of all, as a multiple of the median of these distances.
    told : one sentence for each model line, for the round's event.
    """

    models: list[tuple[int, str, int]] = field(default_factory=list)
    states: list[tuple[int, str, int]] = field(default_factory=list)
    excluded_because: dict[str, str] = field(default_factory=dict)
    away: dict[str, float] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def concerns(self, device_id: str) -> bool:
        """Whether the rule says something of a device."""
        return device_id in self.excluded_because or device_id in self.away

    def judged(self, p: Participation) -> Participation:
        """A participation with what the rule says of it."""
        away = {DISTANCE: self.away[p.device_id]} if p.device_id in self.away else {}
        return replace(p, excluded_because=self.excluded_because.get(p.device_id, ""), metrics=p.metrics | away)


def make(
    model_files: ModelFiles, live: OpenRound, everybody: Sequence[Participation], states: Mapping[int, Model]
) -> Made:
    """Models of every line that got updates; call from a worker thread. `states` are the optimiser's, by line."""
    choice, made = live.choice, Made()
    for line in range(len(live.bases)):
        if choice.is_mean:
            total = live.sums().get(line)
            if total is not None and total.weight_units > 0:
                _move(model_files, live, line, choice.optimiser, states.get(line), total.means, made)
            continue
        updates = [p for p in everybody if _is_seen(p) and p.model_index == line]
        if updates:
            with _combined(model_files, live, line, sorted(updates, key=lambda p: p.device_id), made) as change:
                if change is not None:
                    _move(model_files, live, line, choice.optimiser, states.get(line), change, made)
    return made


def make_from_sums(
    model_files: ModelFiles, live: OpenRound, opened: Sequence[OpenedSum], states: Mapping[int, Model]
) -> Made:
    """The model that opened sums make; call from a worker thread."""
    choice, made, rows = live.choice, Made(), OpenedSums(model_files.blobs, opened)
    if choice.is_mean:
        _move(model_files, live, 0, choice.optimiser, states.get(0), rows.means, made)
        return made
    with tempfile.TemporaryFile() as file:
        run = Combination(choice.of_round(live.task.specification.seed, live.round.number), rows)
        for chunk in run.chunks():
            file.write(chunk.tobytes())
        aside = {f"sum {opened[item.device].cohort}": item.why for item in run.set_aside}
        made.told.append(f"{choice.name} used {len(run.used)} of {rows.count} sums{_named(aside)}")
        _move(model_files, live, 0, choice.optimiser, states.get(0), partial(_kept, file), made)
    return made


def _is_seen(p: Participation) -> bool:
    return p.state is ParticipationState.DELIVERED and p.form in VISIBLE


@contextmanager
def _combined(
    model_files: ModelFiles, live: OpenRound, line: int, updates: Sequence[Participation], made: Made
) -> Iterator[Change | None]:
    """The change that the task's rule makes of the updates; None when they are too few for it."""
    choice = live.choice
    prefix = f"model {line}: " if len(live.bases) > 1 else ""
    why = choice.rule.why_not(len(updates))
    if why:
        made.told.append(f"{prefix}{choice.name} left the model as it was: {why}")
        yield None
        return
    stored = [StoredUpdate.of(model_files, update, live.discount(update.staleness)) for update in updates]
    rows = StoredUpdates(model_files.blobs, model_files.layout(*live.bases[line]), stored)
    run = Combination(
        choice.of_round(live.task.specification.seed, live.round.number),
        rows,
        weights=relative([update.weight for update in updates]) if choice.rule.name == "mean" else None,
        trust=[live.roster.items[update.device_id].trust_weight for update in updates] if choice.by_trust else None,
    )
    with tempfile.TemporaryFile() as file:
        for chunk in run.chunks():
            file.write(chunk.tobytes())
        aside = {updates[item.device].device_id: item.why for item in run.set_aside}
        made.excluded_because |= aside
        made.told.append(f"{prefix}{choice.name} used {len(run.used)} of {len(updates)} updates{_named(aside)}")
        if choice.rule.name != "mean":
            away = distances_from(rows, _kept(file))
            made.away |= dict(zip((update.device_id for update in updates), multiples(away), strict=True))
        yield partial(_kept, file)


def _named(aside: Mapping[str, str]) -> str:
    """The first few that were set aside, and why."""
    if not aside:
        return ""
    few = [f"{device} ({why})" for device, why in sorted(aside.items())[:NAMED]]
    return f"; set aside: {', '.join(few)}" + (f" and {len(aside) - NAMED} more" if len(aside) > NAMED else "")


def _kept(file: IO[bytes]) -> Iterator[Vector]:
    file.seek(0)
    while piece := file.read(8 * model_steps.WINDOW):
        yield np.frombuffer(piece)


def _move(
    model_files: ModelFiles,
    live: OpenRound,
    line: int,
    optimiser: Optimiser | None,
    before: Model | None,
    change: Change,
    made: Made,
) -> None:
    digest, size = live.bases[line]
    layout = model_files.layout(digest, size)
    header, read = model_files.header(digest, layout), partial(model_files.blobs.read, digest)
    if optimiser is None:
        pieces = model_steps.add_change(layout, header, read, change())
    else:
        old = (
            model_steps.first_reader(optimiser)
            if before is None
            else _state(model_files, before.digest, before.size_bytes)
        )
        state = model_files.blobs.put_pieces(model_steps.remember(optimiser, layout.elements, old, change))
        made.states.append((line, *state))
        pieces = model_steps.advance(layout, header, read, optimiser, _state(model_files, *state), change)
    made.models.append((line, *model_files.blobs.put_pieces(pieces)))


def _state(model_files: ModelFiles, digest: str, size: int) -> model_steps.StateReader:
    return model_steps.state_reader(model_files.layout(digest, size), partial(model_files.blobs.read, digest))
