"""Planners: one per topology. Each checks a task's parameters, gathers what it needs, and plans without I/O."""
