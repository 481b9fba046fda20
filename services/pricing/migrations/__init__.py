"""Alembic migrations of the pricing engine."""
