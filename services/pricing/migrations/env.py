"""Run the migrations on the connection that the kit opens."""

from services.kit.database import migration
from services.pricing.tables import metadata

migration.run(metadata)
