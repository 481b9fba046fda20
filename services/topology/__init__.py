"""Topology planner: clusters, meshes, schedules."""
