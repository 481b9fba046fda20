"""Aggregation server: tasks, rounds, models, letters."""
