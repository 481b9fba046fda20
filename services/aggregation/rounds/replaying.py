"""Recompute a round's models from stored updates: equal updates and weights give equal bits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coterie.records.enums import ParticipationState
from services.aggregation.domain.records import Model, Participation, ReplayedRound, Round, Task
from services.aggregation.rounds.closing import delivery_of
from services.aggregation.rounds.model_update import NewModels, build_models
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.store import models, rounds
from services.aggregation.store.model_files import ModelFiles
from services.aggregation.strategies.base import VISIBLE
from services.kit.database.engine import Database


@dataclass(frozen=True, slots=True)
class Replayer:
    """Recompute the models of finished rounds without changing them."""

    database: Database
    model_files: ModelFiles

    async def replay(self, task: Task, round_: Round) -> ReplayedRound:
        """Return the digests of a round's recomputed models beside the stored ones."""
        async with self.database.reading() as tx:
            participations = await rounds.list_participations(tx, task.id, round_.number)
            current = await models.latest_models(tx, task.id, before=round_.number)
            states = await models.latest_states(tx, task.id, before=round_.number)
        counted = [p for p in participations if p.state is ParticipationState.DELIVERED]
        figures = (round_.number, len(counted), max((p.staleness for p in counted), default=0), round_.model_digests)
        why = _why_not(task, round_, counted)
        if why:
            return ReplayedRound(*figures, note=why)
        open_round = OpenRound(task, round_, participations, [(m.digest, m.size_bytes) for m in current])
        new_models = await asyncio.to_thread(self._make, open_round, participations, counted, states)
        await self._forget(new_models)
        digests = {m.line: m.digest for m in current} | {line: digest for line, digest, _ in new_models.models}
        return ReplayedRound(*figures, tuple(digests[line] for line in sorted(digests)))

    def _make(
        self,
        open_round: OpenRound,
        participations: Sequence[Participation],
        counted: Sequence[Participation],
        states: Mapping[int, Model],
    ) -> NewModels:
        """Recompute the round; call from a worker thread."""
        try:
            if open_round.choice.is_mean:
                for p in counted:
                    open_round.fold(self.model_files, delivery_of(p))
            return build_models(self.model_files, open_round, participations, states)
        finally:
            open_round.close()

    async def _forget(self, new_models: NewModels) -> None:
        """Delete recomputed blobs that no row names."""
        digests = {digest for _, digest, _ in (*new_models.models, *new_models.states)}
        async with self.database.reading() as tx:
            unused = digests - await models.digests_in_use(tx, digests) if digests else set()
        for digest in unused:
            await self.model_files.blobs.delete(digest)


def _why_not(task: Task, round_: Round, counted: Sequence[Participation]) -> str:
    if not round_.model_digests:
        return f"the round is {round_.state}; it has made no model"
    if any(p.form not in VISIBLE for p in counted):
        return "the server saw no updates: devices mixed among themselves, or their sum was secure"
    if not all(p.is_stored for p in counted):
        retained = task.specification.kept_rounds
        stays = (
            f"the last {retained} rounds keep theirs" if retained else "create the task with keep_rounds to keep them"
        )
        return f"its updates are no longer stored; {stays}"
    return ""
