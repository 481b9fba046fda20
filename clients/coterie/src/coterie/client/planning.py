"""Base stations, scheduling policies, and what-if solvers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coterie.client.rest import RestClient
from coterie.records import Cell, Items, Policy

SOLVE_SECONDS = 120.0


class Planning(RestClient):
    """Base stations, policies and solvers."""

    def cells(self) -> tuple[Cell, ...]:
        """Base stations in order of id."""
        return self.ask(Items[Cell], "GET", "/v1/cells").items

    def cell(self, cell_id: str) -> Cell:
        """One base station."""
        return self.ask(Cell, "GET", f"/v1/cells/{cell_id}")

    def put_cell(self, cell_id: str, **fields: Any) -> Cell:
        """Registers or changes a base station; fields are those of `Cell`."""
        return self.ask(Cell, "PUT", f"/v1/cells/{cell_id}", json=fields)

    def remove_cell(self, cell_id: str) -> None:
        """Removes a base station; plans made from now on do without it."""
        self.request("DELETE", f"/v1/cells/{cell_id}")

    def policies(self) -> tuple[Policy, ...]:
        """Scheduling policies, newest first."""
        return self.ask(Items[Policy], "GET", "/v1/policies").items

    def train_policy(self, **options: Any) -> Policy:
        """Starts training a policy for the present cells; options such as users, models, learner, seed and steps."""
        return self.ask(Policy, "POST", "/v1/policies", json=options)

    def what_if(self, solver: str, question: Mapping[str, Any]) -> Any:
        """A solver's answer to a question, without a task; both are the solver's own JSON."""
        path = f"/v1/what-if/{solver}"
        return self.request("POST", path, json=dict(question), idempotent=True, wait_seconds=SOLVE_SECONDS)
