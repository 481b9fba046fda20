"""Shifts: a topology in which half of the devices rest in each round, and the midrange rule."""
