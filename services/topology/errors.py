"""What can go wrong in the topology planner, each one of the kit's kinds."""

from __future__ import annotations

from services.kit.errors import Conflict, InvalidInput, NotFound


class UnknownPlan(NotFound):
    """The task has no such plan."""


class BadParameters(InvalidInput):
    """The task's parameters cannot be planned with."""


class UnknownCell(NotFound):
    """No base station has that id."""


class BadCell(InvalidInput):
    """The base station's description does not make sense."""


class CannotPlan(Conflict):
    """The participants, as they are, cannot be planned for."""
