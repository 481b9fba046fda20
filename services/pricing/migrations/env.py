"""Runs the migrations on the connection handed over by the kit."""

from services.kit.database import migration
from services.pricing.tables import metadata

migration.run(metadata)
