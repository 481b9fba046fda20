"""Making a round's models again from what is stored: the same updates and weights, hence the same bits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coterie.records.enums import ParticipationState
from services.aggregation.domain.records import Model, Participation, ReplayedRound, Round, Task
from services.aggregation.rounds.closing import delivery_of
from services.aggregation.rounds.model_update import Made, make
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.store import models, rounds
from services.aggregation.store.model_files import ModelFiles
from services.aggregation.strategies.base import VISIBLE
from services.kit.database.engine import Database


@dataclass(frozen=True, slots=True)
class Replayer:
    """Closes rounds that are over once more, changing nothing."""

    database: Database
    model_files: ModelFiles

    async def replay(self, task: Task, round_: Round) -> ReplayedRound:
        """A round's models as its updates make them, beside those it made."""
        async with self.database.reading() as tx:
            everybody = await rounds.list_participations(tx, task.id, round_.number)
            current = await models.latest_models(tx, task.id, before=round_.number)
            states = await models.latest_states(tx, task.id, before=round_.number)
        counted = [p for p in everybody if p.state is ParticipationState.DELIVERED]
        figures = (round_.number, len(counted), max((p.staleness for p in counted), default=0), round_.model_digests)
        why = _why_not(task, round_, counted)
        if why:
            return ReplayedRound(*figures, note=why)
        live = OpenRound(task, round_, everybody, [(m.digest, m.size_bytes) for m in current])
        made = await asyncio.to_thread(self._make, live, everybody, counted, states)
        await self._forget(made)
        digests = {m.line: m.digest for m in current} | {line: digest for line, digest, _ in made.models}
        return ReplayedRound(*figures, tuple(digests[line] for line in sorted(digests)))

    def _make(
        self,
        live: OpenRound,
        everybody: Sequence[Participation],
        counted: Sequence[Participation],
        states: Mapping[int, Model],
    ) -> Made:
        """The round closed again; call from a worker thread."""
        try:
            if live.choice.is_mean:
                for p in counted:
                    live.fold(self.model_files, delivery_of(p))
            return make(self.model_files, live, everybody, states)
        finally:
            live.close()

    async def _forget(self, made: Made) -> None:
        """Leaves nothing in the store that was not there before."""
        digests = {digest for _, digest, _ in (*made.models, *made.states)}
        async with self.database.reading() as tx:
            unused = digests - await models.digests_in_use(tx, digests) if digests else set()
        for digest in unused:
            await self.model_files.blobs.delete(digest)


def _why_not(task: Task, round_: Round, counted: Sequence[Participation]) -> str:
    if not round_.model_digests:
        return f"the round is {round_.state}; it has made no model"
    if any(p.form not in VISIBLE for p in counted):
        return "the server saw no updates: devices mixed among themselves, or their sum was secure"
    if not all(p.kept for p in counted):
        retained = task.specification.kept_rounds
        stays = (
            f"the last {retained} rounds keep theirs" if retained else "create the task with keep_rounds to keep them"
        )
        return f"its updates are no longer stored; {stays}"
    return ""
