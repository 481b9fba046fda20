"""Alembic's entry into this service's migrations."""

from services.aggregation.tables import metadata
from services.kit.database import migration

migration.run(metadata)
