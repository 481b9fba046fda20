"""`python -m services.topology` serves; `… station [CELL]` is a base station; `… what-if SOLVER` answers one question;
`… refit` fits the quality model; `… warm` compiles the planners' loops beforehand."""

import sys

from services.kit.runtime import whatif
from services.topology.whatif import SOLVERS


async def serve_cell(cell_id: str) -> None:
    """A base station at work until SIGTERM or SIGINT."""
    from services.kit.runtime import process
    from services.kit.runtime.settings import ServiceSettings
    from services.topology.commands.station import StationApp

    settings = ServiceSettings()
    await process.serve("station", settings, lambda: StationApp(settings, cell_id))


async def serve() -> None:
    """Serves until SIGTERM or SIGINT."""
    # Imported here so that a what-if question does not wait for the server's libraries.
    from services.kit.runtime import process
    from services.kit.runtime.settings import ServiceSettings
    from services.topology.app import App

    settings = ServiceSettings()
    address = settings.listening_at(settings.topology_address)
    await process.serve("topology", settings, lambda: App(settings, address))


def main(argv: list[str]) -> int:
    """Serves with no arguments, answers a what-if question, refits the quality model or compiles loops."""
    if argv[:1] == ["what-if"]:
        return whatif.main(SOLVERS, argv[1:])
    if argv == ["refit"]:
        from services.topology.commands import refit

        return refit.main()
    if argv == ["warm"]:
        from services.topology.commands import warm

        return warm.main()
    if argv[:1] == ["station"] and len(argv) <= 2:
        from services.kit.runtime import process

        process.run(serve_cell("".join(argv[1:])))
        return 0
    if argv:
        sys.stderr.write("usage: python -m services.topology [station [CELL] | what-if SOLVER | refit | warm]\n")
        return 2
    from services.kit.runtime import process

    process.run(serve())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
