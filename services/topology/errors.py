"""What can go wrong in the topology planner, each one of the kit's kinds."""

from __future__ import annotations

from services.kit.errors import Conflict, InvalidInput, NotFound, PermissionDenied


class UnknownPlan(NotFound):
    """The task has no such plan."""


class UnknownCell(NotFound):
    """No base station has that id."""


class BadCell(InvalidInput):
    """The base station's description does not make sense."""


class CannotPlan(Conflict):
    """The participants, as they are, cannot be planned for."""


class UnknownPolicy(NotFound):
    """No scheduling policy has that id."""


class BadPolicy(InvalidInput):
    """A policy that cannot be trained as asked."""


class PolicyNotUsable(Conflict):
    """The policy is not ready, or was trained for other cells or another number of models."""


class NoCells(Conflict):
    """No base station is registered."""


class NoFreeCell(Conflict):
    """Every base station that is registered has its process, or the one asked for has."""


class NotThisStation(PermissionDenied):
    """The caller is not the station that serves the cell."""


class StationLost(Conflict):
    """No station answers for the cell."""


class UnknownQuestion(NotFound):
    """The station was not asked that, or it is too late."""


class BadAnswer(InvalidInput):
    """A station's answer does not fit its question."""


class BadCommittee(InvalidInput):
    """A question about clerks that makes no sense."""
