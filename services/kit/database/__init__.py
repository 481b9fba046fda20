"""Databases, rows, migrations and the blob store."""
