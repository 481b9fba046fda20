"""Processes: settings, clocks, workers, start and shutdown."""
