"""New models of a closing round: the change by the task's rule, and the optimiser's step along it.

The round's sums hold a plain mean. Every other rule reads the stored updates in order of device id and ignores the
sums. Both depend on stored data alone, so repeating a step after a crash gives the same bytes.
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
"""Iterate a round's change of the model from its start; callable several times."""
NAMED = 3
"""Excluded devices or sums that an event names; the round's participations have all."""


@dataclass(slots=True)
class NewModels:
    """New models and optimiser states of a round as (line, digest, size), and how the rule treated the updates.

    Attributes
    ----------
    excluded_because : devices whose update did not count, and why.
    distances : distance of each update from the combined change, as a multiple of the median distance.
    summaries : one sentence for each model line, for the round's event.
    """

    models: list[tuple[int, str, int]] = field(default_factory=list)
    states: list[tuple[int, str, int]] = field(default_factory=list)
    excluded_because: dict[str, str] = field(default_factory=dict)
    distances: dict[str, float] = field(default_factory=dict)
    summaries: list[str] = field(default_factory=list)

    def concerns(self, device_id: str) -> bool:
        """Whether the rule excluded a device or measured its distance."""
        return device_id in self.excluded_because or device_id in self.distances

    def annotated(self, p: Participation) -> Participation:
        """Return a participation with its exclusion and distance."""
        distance = {DISTANCE: self.distances[p.device_id]} if p.device_id in self.distances else {}
        return replace(p, excluded_because=self.excluded_because.get(p.device_id, ""), metrics=p.metrics | distance)


def build_models(
    model_files: ModelFiles, open_round: OpenRound, participations: Sequence[Participation], states: Mapping[int, Model]
) -> NewModels:
    """Make the models of all lines with updates; call from a worker thread. `states` are the optimiser's, by line."""
    choice, new_models = open_round.choice, NewModels()
    for line in range(len(open_round.bases)):
        if choice.is_mean:
            total = open_round.sums().get(line)
            if total is not None and total.weight_units > 0:
                _move(model_files, open_round, line, choice.optimiser, states.get(line), total.means, new_models)
            continue
        updates = [p for p in participations if _is_seen(p) and p.model_index == line]
        if updates:
            with _combined(
                model_files, open_round, line, sorted(updates, key=lambda p: p.device_id), new_models
            ) as change:
                if change is not None:
                    _move(model_files, open_round, line, choice.optimiser, states.get(line), change, new_models)
    return new_models


def build_models_from_sums(
    model_files: ModelFiles, open_round: OpenRound, opened: Sequence[OpenedSum], states: Mapping[int, Model]
) -> NewModels:
    """Make the model from unmasked sums; call from a worker thread."""
    choice, new_models, rows = open_round.choice, NewModels(), OpenedSums(model_files.blobs, opened)
    if choice.is_mean:
        _move(model_files, open_round, 0, choice.optimiser, states.get(0), rows.means, new_models)
        return new_models
    with tempfile.TemporaryFile() as file:
        run = Combination(choice.of_round(open_round.task.specification.seed, open_round.round.number), rows)
        for chunk in run.chunks():
            file.write(chunk.tobytes())
        excluded = {f"sum {opened[item.device].cohort}": item.why for item in run.set_aside}
        new_models.summaries.append(f"{choice.name} used {len(run.used)} of {rows.count} sums{_name_few(excluded)}")
        _move(model_files, open_round, 0, choice.optimiser, states.get(0), partial(_read_back, file), new_models)
    return new_models


def _is_seen(p: Participation) -> bool:
    return p.state is ParticipationState.DELIVERED and p.form in VISIBLE


@contextmanager
def _combined(
    model_files: ModelFiles, open_round: OpenRound, line: int, updates: Sequence[Participation], new_models: NewModels
) -> Iterator[Change | None]:
    """Combine the updates by the task's rule; None when they are too few for it."""
    choice = open_round.choice
    prefix = f"model {line}: " if len(open_round.bases) > 1 else ""
    why = choice.rule.why_not(len(updates))
    if why:
        new_models.summaries.append(f"{prefix}{choice.name} left the model as it was: {why}")
        yield None
        return
    stored = [StoredUpdate.of(model_files, update, open_round.discount(update.staleness)) for update in updates]
    rows = StoredUpdates(model_files.blobs, model_files.layout(*open_round.bases[line]), stored)
    run = Combination(
        choice.of_round(open_round.task.specification.seed, open_round.round.number),
        rows,
        weights=relative([update.weight for update in updates]) if choice.rule.name == "mean" else None,
        trust=[open_round.roster.items[update.device_id].trust_weight for update in updates]
        if choice.by_trust
        else None,
    )
    with tempfile.TemporaryFile() as file:
        for chunk in run.chunks():
            file.write(chunk.tobytes())
        excluded = {updates[item.device].device_id: item.why for item in run.set_aside}
        new_models.excluded_because |= excluded
        new_models.summaries.append(
            f"{prefix}{choice.name} used {len(run.used)} of {len(updates)} updates{_name_few(excluded)}"
        )
        if choice.rule.name != "mean":
            away = distances_from(rows, _read_back(file))
            new_models.distances |= dict(zip((update.device_id for update in updates), multiples(away), strict=True))
        yield partial(_read_back, file)


def _name_few(excluded: Mapping[str, str]) -> str:
    """Name the first few excluded, and why."""
    if not excluded:
        return ""
    few = [f"{device} ({why})" for device, why in sorted(excluded.items())[:NAMED]]
    return f"; set aside: {', '.join(few)}" + (f" and {len(excluded) - NAMED} more" if len(excluded) > NAMED else "")


def _read_back(file: IO[bytes]) -> Iterator[Vector]:
    file.seek(0)
    while piece := file.read(8 * model_steps.WINDOW):
        yield np.frombuffer(piece)


def _move(
    model_files: ModelFiles,
    open_round: OpenRound,
    line: int,
    optimiser: Optimiser | None,
    before: Model | None,
    change: Change,
    new_models: NewModels,
) -> None:
    digest, size = open_round.bases[line]
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
        new_models.states.append((line, *state))
        pieces = model_steps.advance(layout, header, read, optimiser, _state(model_files, *state), change)
    new_models.models.append((line, *model_files.blobs.put_pieces(pieces)))


def _state(model_files: ModelFiles, digest: str, size: int) -> model_steps.StateReader:
    return model_steps.state_reader(model_files.layout(digest, size), partial(model_files.blobs.read, digest))
