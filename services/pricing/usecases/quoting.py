"""Pricing a round: asks for the ties an incentive needs, solves, and keeps the answer for ever."""

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
from services.pricing.domain.records import Purse, Quote
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
        """The round's quote, made once. An offer stands; participants who have none yet are offered theirs."""
        require_platform()
        checks.name("task_id", task_id)
        checks.round_number(round_number)
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
        purse = await self._purse(task_id, round_number, rounds)
        plugin = incentive_plugins.REGISTRY.get(incentive)
        if plugin is not None:
            return await asyncio.to_thread(plugin.quote, task_id, round_number, devices, parameters, purse)
        if isinstance(parameters, PotParameters):
            return quote_pot(
                task_id, round_number, incentive=incentive, device_ids=devices, parameters=parameters, purse=purse
            )
        ties = await self._ties.among(devices)
        assert isinstance(parameters, CorrelatedParameters)  # the last of the incentives
        return await self._workers.run(quote_correlated, task_id, round_number, devices, ties, parameters, purse)

    async def _priced(
        self,
        task_id: str,
        round_number: int,
        parameters: StackelbergParameters,
        devices: list[str],
        rounds: int,
        data: Data | None,
    ) -> Quote:
        purse = await self._purse(task_id, round_number, rounds)
        if parameters.influence == "declared":
            ties = await self._ties.declared(devices)
        else:
            # Hops are counted along direct ties: combined trust holds paths already, and would count them twice.
            ties = await self._ties.among(devices, direct=parameters.influence == "direct")
        return await self._workers.run(quote_stackelberg, task_id, round_number, devices, ties, parameters, purse, data)

    async def _purse(self, task_id: str, round_number: int, rounds: int) -> Purse:
        async with self._database.reading() as tx:
            account = await ledger_store.find_account(tx, f"escrow:{task_id}")
        if account is None:
            raise UnknownEscrow(f"task {task_id} has no escrow to price its rounds from; open one first")
        return Purse(account.balance_microcredits, max(1, rounds - round_number + 1))

    async def _keep(self, made: Quote) -> Quote:
        """Stores the quote, or adds to the one that is there the offers it lacks."""
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
        """A round's quote; a device sees its own offer alone, a publisher the quotes of its own tasks."""
        checks.name("task_id", task_id)
        async with self._database.reading() as tx:
            result = await quotes.find(tx, task_id, checks.round_number(round_number))
            escrow = await payments.find_escrow(tx, task_id)
        if result is None:
            raise UnknownQuote(f"round {round_number} of task {task_id} was not priced yet; wait until it opens")
        caller = current_principal()
        if caller.role == "publisher" and (escrow is None or escrow.publisher != caller.subject):
            raise NotAllowed(f"task {task_id} is another publisher's; use that publisher's key")
        if caller.role != "device":
            return result
        return replace(result, offers=tuple(offer for offer in result.offers if offer.device_id == caller.subject))

    def check_parameters(self, incentive: str, document: Mapping[str, Any], escrow: int, rounds: int) -> dict[str, Any]:
        """The parameters with every default filled in."""
        completed = complete_parameters(incentive, document, escrow, rounds)
        if isinstance(read_parameters(incentive, completed), StackelbergParameters | CorrelatedParameters):
            self._workers.warm()  # the task's first price will be asked for soon
        return completed


def _check_devices(devices: Sequence[str]) -> None:
    for device_id in devices:
        checks.name("device_id", device_id)
    if len(set(devices)) != len(devices):
        raise BadRound("a device is named twice among the participants; send each once")
