"""Streaming readers of public data sets: one record at a time with its line number, errors by file and line."""
