"""Alembic's entry into this service's migrations."""

from services.kit.database import migration
from services.topology.tables import metadata

migration.run(metadata)
