"""Runs the migrations on the connection handed over by the kit."""

from services.kit import migration
from services.trust.tables import metadata

migration.run(metadata)
