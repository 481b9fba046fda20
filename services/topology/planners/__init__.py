"""Planners, one per topology: built-in ones, and those of entry points of the group `coterie.planners`.

A planner is loaded when its topology is first planned: those of clusters and meshes bring compilers, which take half a
second to import.
"""

from __future__ import annotations

from coterie.plugins import Registry, require_members
from services.topology.planners.base import MakePlanner


def _require_planner(item: object) -> MakePlanner:
    require_members(item, "check", "is_slow", "gather", "plan")
    if not callable(item):
        raise TypeError(f"{item!r} is not a class")
    return item


REGISTRY = Registry(
    "coterie.planners",
    {
        "cells": "services.topology.planners.cells:CellsPlanner",
        "clusters": "services.topology.planners.clusters:ClustersPlanner",
        "mesh": "services.topology.planners.mesh:MeshPlanner",
        "star": "services.topology.planners.star:StarPlanner",
    },
    _require_planner,
)
