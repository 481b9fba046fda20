"""The planner the services call; see `betta_reference` for the steps."""

from services.topology.domain.betta_reference import plan_mesh_reference as plan_mesh

__all__ = ["plan_mesh"]
