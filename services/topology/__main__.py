"""`python -m services.topology` serves; `… what-if SOLVER` answers one question; `… refit` fits the quality model;
`… warm` compiles the planners' loops beforehand."""

import sys

from services.kit import whatif

SOLVERS = {
    "clusters": "services.topology.whatif.clusters",
    "mesh": "services.topology.whatif.mesh",
    "noise": "services.topology.whatif.noise",
    "blocks": "services.topology.whatif.blocks",
    "identity": "services.topology.whatif.identity",
}


async def serve() -> None:
    from services.kit import process
    from services.kit.settings import ServiceSettings
    from services.topology.app import App

    settings = ServiceSettings()
    await process.serve("topology", settings, App(settings, settings.port_of(settings.topology_address), SOLVERS))


if __name__ == "__main__":
    if sys.argv[1:2] == ["what-if"]:
        sys.exit(whatif.main(SOLVERS, sys.argv[2:]))
    if sys.argv[1:] == ["refit"]:
        from services.topology import refitting

        sys.exit(refitting.main())
    if sys.argv[1:] == ["warm"]:
        from services.topology import warming

        sys.exit(warming.main())
    # Imported here so that a what-if question does not wait for the server's libraries.
    from services.kit import process

    process.run(serve())
