"""Stores of the trust registry: each works inside the caller's transaction and never commits.

The contract is the same on SQLite and PostgreSQL; the tests run every store on both.
"""
