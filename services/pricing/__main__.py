"""`python -m services.pricing` serves; `python -m services.pricing what-if SOLVER` answers one question."""

import sys

from services.kit.runtime import whatif
from services.pricing.whatif import SOLVERS


async def serve() -> None:
    """Serve until SIGTERM or SIGINT."""
    # Imported here so that a what-if question does not load the server's libraries.
    from services.kit.runtime import process
    from services.pricing.app import App
    from services.pricing.settings import PricingSettings

    settings = PricingSettings()
    address = settings.listening_at(settings.pricing_address)
    await process.serve("pricing", settings, lambda: App(settings, address))


def main(argv: list[str]) -> int:
    """Serve with no arguments, or answer a what-if question."""
    if argv[:1] == ["what-if"]:
        return whatif.main(SOLVERS, argv[1:])
    if argv:
        sys.stderr.write("usage: python -m services.pricing [what-if SOLVER]\n")
        return 2
    from services.kit.runtime import process

    process.run(serve())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
