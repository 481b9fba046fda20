"""Stores of the topology planner: rows in, messages and records out, inside the caller's transaction."""
