"""Pricing a round: reads the ties an incentive needs, solves, and stores the quote for good."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from coterie.parameters import ParameterGroup
from coterie.parameters.pricing import CorrelatedParameters, PotParameters, StackelbergParameters
from services.kit.database.engine import Database
from services.kit.rpc.principal import NotAllowed, current_principal
from services.kit.runtime.clock import Clock
from services.kit.runtime.workers import Workers
from services.pricing.domain import checks, incentive_plugins
from services.pricing.domain.incentive_correlated import quote_correlated
from services.pricing.domain.incentive_stackelberg import Data, quote_stackelberg
from services.pricing.domain.incentives import complete_parameters, quote_nothing, quote_pot, read_parameters
from services.pricing.domain.records import Quote, RoundBudget
from services.pricing.errors import BadRound, QuoteDiffers, UnknownEscrow, UnknownQuote
from services.pricing.store import ledger_store, payments, quotes
from services.pricing.usecases.access import require_platform
from services.pricing.usecases.ties import Ties


class Quoting:
    """Prices of rounds."""

    def __init__(self, database: Database, clock: Clock, ties: Ties, workers: Workers) -> None:
        self._database = database
        self._clock = clock
        self._ties = ties
        self._workers = workers

    async def quote(
        self,
        task_id: str,
        round_number: int,
        incentive: str,
        document: Mapping[str, Any],
        devices: Sequence[str],
        rounds: int,
        data: Data | None = None,
    ) -> Quote:
        """Return the round's quote, made once. Offers stand; participants without one get theirs."""
        require_platform()
        checks.require_name("task_id", task_id)
        checks.require_round_number(round_number)
        parameters = read_parameters(incentive, document)
        _check_devices(devices)
        async with self._database.reading() as tx:
            existing = await quotes.find(tx, task_id, round_number)
        if existing is not None and existing.incentive != incentive:
            raise QuoteDiffers(f"round {round_number} of task {task_id} was priced as {existing.incentive!r}")
        if existing is not None and not set(devices) - {offer.device_id for offer in existing.offers}:
            return existing
        if isinstance(parameters, StackelbergParameters) and devices:
            made = await self._priced(
                task_id, round_number, parameters=parameters, devices=list(devices), rounds=rounds, data=data
            )
        else:
            made = await self._make(
                task_id, round_number, incentive=incentive, parameters=parameters, devices=list(devices), rounds=rounds
            )
        return await self._keep(made)

    async def _make(
        self,
        task_id: str,
        round_number: int,
        incentive: str,
        parameters: ParameterGroup | None,
        devices: list[str],
        rounds: int,
    ) -> Quote:
        if incentive == "none" or not devices:
            return replace(quote_nothing(task_id, round_number, devices), incentive=incentive)
        round_budget = await self._round_budget(task_id, round_number, rounds)
        plugin = incentive_plugins.REGISTRY.get(incentive)
        if plugin is not None:
            return await asyncio.to_thread(plugin.quote, task_id, round_number, devices, parameters, round_budget)
        if isinstance(parameters, PotParameters):
            return quote_pot(
                task_id,
                round_number,
                incentive=incentive,
                device_ids=devices,
                parameters=parameters,
                round_budget=round_budget,
            )
        ties = await self._ties.among(devices)
        assert isinstance(parameters, CorrelatedParameters)  # the last of the incentives
        return await self._workers.run(quote_correlated, task_id, round_number, devices, ties, parameters, round_budget)

    async def _priced(
        self,
        task_id: str,
        round_number: int,
        parameters: StackelbergParameters,
        devices: list[str],
        rounds: int,
        data: Data | None,
    ) -> Quote:
        round_budget = await self._round_budget(task_id, round_number, rounds)
        if parameters.influence == "declared":
            ties = await self._ties.declared(devices)
        else:
            # Hops follow direct ties: combined trust already contains paths and would count them twice.
            ties = await self._ties.among(devices, direct=parameters.influence == "direct")
        return await self._workers.run(
            quote_stackelberg, task_id, round_number, devices, ties, parameters, round_budget, data
        )

    async def _round_budget(self, task_id: str, round_number: int, rounds: int) -> RoundBudget:
        async with self._database.reading() as tx:
            account = await ledger_store.find_account(tx, f"escrow:{task_id}")
        if account is None:
            raise UnknownEscrow(f"task {task_id} has no escrow to price its rounds from; open one first")
        return RoundBudget(account.balance_microcredits, max(1, rounds - round_number + 1))

    async def _keep(self, made: Quote) -> Quote:
        """Store the quote, or add the missing offers to the stored one."""
        async with self._database.writing() as tx:
            if await quotes.add(tx, made, self._clock.now()):
                return made
            existing = await quotes.find(tx, made.task_id, made.round, lock=True)
            assert existing is not None  # the reason why it was not added
            known = {offer.device_id for offer in existing.offers}
            fresh = tuple(offer for offer in made.offers if offer.device_id not in known)
            whole = replace(existing, offers=existing.offers + fresh)
            if fresh:
                await quotes.replace(tx, whole)
            return whole

    async def get(self, task_id: str, round_number: int) -> Quote:
        """Return a round's quote; a device sees only its own offer, a publisher only its own tasks."""
        checks.require_name("task_id", task_id)
        async with self._database.reading() as tx:
            result = await quotes.find(tx, task_id, checks.require_round_number(round_number))
            escrow = await payments.find_escrow(tx, task_id)
        if result is None:
            raise UnknownQuote(f"round {round_number} of task {task_id} has no quote yet; wait until it opens")
        caller = current_principal()
        if caller.role == "publisher" and (escrow is None or escrow.publisher != caller.subject):
            raise NotAllowed(f"task {task_id} belongs to another publisher; use that publisher's key")
        if caller.role != "device":
            return result
        return replace(result, offers=tuple(offer for offer in result.offers if offer.device_id == caller.subject))

    def check_parameters(self, incentive: str, document: Mapping[str, Any], escrow: int, rounds: int) -> dict[str, Any]:
        """Return the parameters with every default filled in."""
        completed = complete_parameters(incentive, document, escrow, rounds)
        if isinstance(read_parameters(incentive, completed), StackelbergParameters | CorrelatedParameters):
            self._workers.warm()  # the task's first price will be asked for soon
        return completed


def _check_devices(devices: Sequence[str]) -> None:
    for device_id in devices:
        checks.require_name("device_id", device_id)
    if len(set(devices)) != len(devices):
        raise BadRound("a device occurs twice among the participants; send each once")
