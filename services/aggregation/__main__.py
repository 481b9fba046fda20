"""`python -m services.aggregation` serves; `python -m services.aggregation what-if SOLVER` answers one question."""

import sys

from services.aggregation.whatif import SOLVERS
from services.kit.runtime import whatif


async def serve() -> None:
    """Serves until SIGTERM or SIGINT."""
    # Imported here so that a what-if question does not wait for the server's libraries.
    from services.aggregation.app import App
    from services.aggregation.settings import AggregationSettings
    from services.kit.runtime import process

    settings = AggregationSettings()
    address = settings.listening_at(settings.aggregation_address)
    await process.serve("aggregation", settings, lambda: App(settings, address))


def main(argv: list[str]) -> int:
    """Serves with no arguments, or answers a what-if question."""
    if argv[:1] == ["what-if"]:
        return whatif.main(SOLVERS, argv[1:])
    if argv:
        sys.stderr.write("usage: python -m services.aggregation [what-if SOLVER]\n")
        return 2
    from services.kit.runtime import process

    process.run(serve())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
