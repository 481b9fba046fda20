"""Rows in, records out. Every function works inside the caller's transaction and never commits.

Pages are cut by key, not by offset: `cursor` is the last key of the page before.
"""
