"""`python -m services.aggregation`: the aggregation server as a process."""

from services.aggregation.app import App
from services.aggregation.settings import AggregationSettings
from services.kit import process


async def main() -> None:
    settings = AggregationSettings()
    await process.serve("aggregation", settings, App(settings, settings.port_of(settings.aggregation_address)))


if __name__ == "__main__":
    process.run(main())
