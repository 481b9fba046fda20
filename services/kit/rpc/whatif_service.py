"""What-if questions over RPC, computed in worker processes that can be killed."""

from __future__ import annotations

from collections.abc import Mapping

from services.kit.rpc.principal import require_role
from services.kit.runtime import whatif
from services.kit.runtime.settings import ServiceSettings
from services.kit.runtime.workers import WHAT_IF_NICENESS, Workers


class WhatIfService:
    """Answers what-if questions; `solvers` are their modules by name."""

    def __init__(self, solvers: Mapping[str, str], settings: ServiceSettings) -> None:
        self._solvers = dict(solvers)
        self._workers = Workers(
            settings.workers,
            niceness=WHAT_IF_NICENESS,
            per_caller=settings.questions_per_caller,
            preload=list(self._solvers.values()),
        )

    async def what_if(self, solver: str, input_json: str) -> str:
        """Answer a JSON question; the worker is killed when the caller cancels."""
        require_role("admin", "publisher")
        return await self._workers.run(whatif.answer, self._solvers, solver, input_json)

    async def close(self) -> None:
        """Kill running workers."""
        await self._workers.close()
