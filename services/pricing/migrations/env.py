"""Runs the migrations on the connection handed over by the kit."""

from services.kit import migration
from services.pricing.tables import metadata

migration.run(metadata)
