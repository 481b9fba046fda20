"""Questions without a task: what-if."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from services.kit import whatif
from services.kit.caller import require_role


@dataclass(frozen=True, slots=True)
class Questions:
    """Answers what-if questions; `solvers` are their modules by name."""

    solvers: Mapping[str, str]

    async def what_if(self, solver: str, input_json: str) -> str:
        """A solver's answer to a JSON question."""
        require_role("admin", "publisher")
        return await asyncio.to_thread(whatif.answer, self.solvers, solver, input_json)
