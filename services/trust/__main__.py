"""`python -m services.trust` serves, `… what-if SOLVER` answers one question, `… rows FORMAT` prints a file's rows."""

import sys

from services.kit.runtime import whatif
from services.trust.whatif import SOLVERS


async def serve() -> None:
    """Serve until SIGTERM or SIGINT."""
    # Imported here so that a what-if question does not load the server's libraries.
    from services.kit.runtime import process
    from services.trust.app import App
    from services.trust.settings import TrustSettings

    settings = TrustSettings()
    address = settings.listening_at(settings.trust_address)
    await process.serve("trust", settings, lambda: App(settings, address))


def main(argv: list[str]) -> int:
    """Serve with no arguments, answer a what-if question, or print the rows of an import."""
    if argv[:1] == ["what-if"]:
        return whatif.main(SOLVERS, argv[1:])
    if argv[:1] == ["rows"]:
        from services.trust.commands import rows

        return rows.main(argv[1:])
    if argv:
        sys.stderr.write("usage: python -m services.trust [what-if SOLVER | rows FORMAT …]\n")
        return 2
    from services.kit.runtime import process

    process.run(serve())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
