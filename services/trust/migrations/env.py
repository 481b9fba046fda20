"""Runs the migrations on the connection handed over by the kit."""

from services.kit.database import migration
from services.trust.tables import metadata

migration.run(metadata)
