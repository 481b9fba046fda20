"""Alembic's entry into this service's migrations."""

from services.kit import migration
from services.topology.tables import metadata

migration.run(metadata)
