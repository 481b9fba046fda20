"""Run the migrations on the connection that the kit opens."""

from services.kit.database import migration
from services.trust.tables import metadata

migration.run(metadata)
