"""Evaluations: a publisher's evaluator values coalitions' models; each device's contribution follows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from coterie.parameters.pricing import ContributionParameters
from coterie.records.enums import EventKind, RoundState
from services.aggregation.domain.records import Contribution, Evaluation, Event, Task
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.errors import BadWorths, WrongTaskState
from services.aggregation.rounds.contributions import Valuation, begin, begin_sums
from services.aggregation.store import contributions, models, rounds, sum_sessions, tasks
from services.aggregation.store.model_files import ModelFiles
from services.aggregation.strategies import strategy_for
from services.aggregation.strategies.base import VISIBLE
from services.aggregation.usecases import visibility
from services.aggregation.usecases.waiting import latest
from services.kit.database.engine import Database
from services.kit.notify.notifier import Notifier
from services.kit.rpc.paging import Page
from services.kit.rpc.principal import current_principal, require_role
from services.kit.runtime.clock import Clock

MOST_WORTH = 1e12
"""Largest worth accepted: sums and differences of such stay exact enough to share a pot by."""


def _ripe(task: Task) -> tuple[RoundState, ...]:
    """States in which a round may be valued; raises when no round of the task ever can."""
    spec, chosen = task.specification, strategy_for(task.specification)
    if chosen.delivery.form not in VISIBLE:
        raise WrongTaskState("in a mesh the server sees no update, so it cannot say what one contributed")
    if SumRules.of(spec.parameters).secure and not chosen.settlement.is_evaluated:
        raise WrongTaskState(
            "under secure sums the server sees no update and keeps no sum; create the task with the incentive "
            "contribution and sums.cohort_devices: then each cohort's sum is valued while its round is settled"
        )
    if len(spec.model_digests) > 1:
        raise WrongTaskState("contributions are reckoned for tasks with one model; this one has several")
    if chosen.settlement.is_evaluated:
        return (RoundState.SETTLING, RoundState.DONE)
    if not spec.kept_rounds:
        raise WrongTaskState(
            "this task keeps no updates to value: create it with keep_rounds, or with the incentive contribution"
        )
    return (RoundState.DONE,)


class EvaluationUseCases:
    """What a publisher's evaluator may ask and tell. What is under way can be taken up again from stored worths."""

    def __init__(self, database: Database, model_files: ModelFiles, notifier: Notifier, clock: Clock) -> None:
        self._database, self._model_files, self._notifier, self._clock = database, model_files, notifier, clock
        self._under_way: dict[str, tuple[int, Valuation]] = {}
        self._lock = asyncio.Lock()

    async def ask(self, task_id: str, wait_seconds: float) -> Evaluation:
        """Return the next models to value; wait for a round to end."""
        require_role("publisher", "admin")
        deadline = latest(self._clock, wait_seconds)
        while True:
            with self._notifier.subscribe(f"events:{task_id}", f"task:{task_id}") as subscription:
                async with self._database.reading() as tx:
                    task = await visibility.see_inside(tx, task_id)
                    number = await contributions.next_round(tx, task_id, _ripe(task))
                if number:
                    return await self._ask(task, number)
                left = deadline - self._clock.now()
                if left <= 0 or task.ended:
                    return Evaluation(task_id, ended=task.ended)
                await subscription.wait(min(left, 1.0))

    async def _ask(self, task: Task, number: int) -> Evaluation:
        async with self._lock:
            valuation = await self._valuation(task, number)
            digest, size, count = await asyncio.to_thread(valuation.ask)
            if digest:
                async with self._database.writing() as tx:
                    await models.add_upload(tx, digest, task.publisher, size, self._clock.now())
            else:
                await self._finish(task, number, valuation)
        return Evaluation(task.id, number, digest, size, count, len(valuation.inquiry.known), len(valuation.players))

    async def answer(self, task_id: str, number: int, digest: str, worths: Sequence[float]) -> tuple[bool, int]:
        """Store the worths of requested models; return whether the round is valued, and how many worths are known."""
        require_role("publisher", "admin")
        async with self._database.reading() as tx:
            task = await visibility.see_inside(tx, task_id)
            valued = await contributions.values_of(tx, task_id, number)
        if valued:
            return True, 0
        async with self._lock:
            valuation = await self._valuation(task, number)
            masks = valuation.asked.get(digest)
            if masks is None:
                raise WrongTaskState("these models were not asked about, or are answered; ask again (GET …/evaluation)")
            if len(worths) != len(masks) or not all(abs(worth) <= MOST_WORTH for worth in worths):
                raise BadWorths(
                    f"worths: {len(masks)} finite numbers were asked for, one for each model in the file, from "
                    f"{-MOST_WORTH:g} to {MOST_WORTH:g}"
                )
            known = dict(zip(masks, worths, strict=True))
            async with self._database.writing() as tx:
                await contributions.add_worths(tx, task_id, number, known)
                await models.remove_upload(tx, digest, task.publisher)
            for mask, worth in known.items():
                valuation.inquiry.answer(mask, worth)
            del valuation.asked[digest]
            await self._discard(digest)
            is_over = not await asyncio.to_thread(valuation.inquiry.questions)
            if is_over:
                await self._finish(task, number, valuation)
        return is_over, len(valuation.inquiry.known)

    async def list_contributions(self, task_id: str, number: int, page: Page) -> list[Contribution]:
        """What each device contributed; a device sees its own."""
        caller = current_principal()
        async with self._database.reading() as tx:
            await visibility.see_inside(tx, task_id)
            only = caller.subject if caller.role == "device" else ""
            return await contributions.totals(tx, task_id, number, page, only)

    async def _valuation(self, task: Task, number: int) -> Valuation:
        """The round as it is being valued, taken up with the worths known so far."""
        held = self._under_way.get(task.id)
        if held is not None and held[0] == number:
            return held[1]
        async with self._database.reading() as tx:
            round_ = await rounds.find_round(tx, task.id, number)
            participations = await rounds.list_participations(tx, task.id, number)
            current = await models.latest_models(tx, task.id, before=number)
            known = await contributions.list_worths(tx, task.id, number)
            secure = task.specification.has_secure_sums
            sums = (await sum_sessions.latest_sessions(tx, task.id, number)).values() if secure else ()
        if round_ is None or not current or not any(p.is_stored for p in participations):
            raise WrongTaskState(f"round {number} of {task.id} has no stored updates to value")
        evaluations = ContributionParameters.of(task.specification.parameters).evaluations
        base = (current[0].digest, current[0].size_bytes)
        place = (self._model_files, task, round_, participations)
        if sums:
            result = await asyncio.to_thread(begin_sums, *place, sums, base, int(evaluations))
        else:
            result = await asyncio.to_thread(begin, *place, base, int(evaluations))
        for mask, worth in known.items():
            result.inquiry.answer(mask, worth)
        self._under_way[task.id] = (number, result)
        return result

    async def _finish(self, task: Task, number: int, valuation: Valuation) -> None:
        result = await asyncio.to_thread(valuation.inquiry.result)
        values = valuation.shared(result)
        message = (
            f"{valuation.seen} valued by {result.evaluations} models: contributions sum "
            f"to {result.values.sum():.4g}, largest standard error {result.errors.max():.2g}"
        )
        async with self._database.writing() as tx:
            await tasks.find_task(tx, task.id, lock=True)  # of two that finish at once the second finds it done
            if not await contributions.values_of(tx, task.id, number):
                await contributions.value_round(tx, task.id, number, values)
                happened = Event(task.id, self._clock.now(), EventKind.ROUND_VALUED, message, number)
                await tasks.add_events(tx, happened)
                await tasks.change_task(tx, task.id)
        self._under_way.pop(task.id, None)
        self._notifier.notify(f"task:{task.id}", f"events:{task.id}")

    async def _discard(self, digest: str) -> None:
        async with self._database.reading() as tx:
            needed = await models.digests_in_use(tx, [digest])
        if not needed:
            await self._model_files.blobs.delete(digest)
