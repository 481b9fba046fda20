"""Streaming readers of public data sets, and a generator for machines without them."""
