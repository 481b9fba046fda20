"""Attacks from inside: by another user of the machine, and by a service that was broken into."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.trust.v1 import trust_pb2
from coterie_cli.certificates import make_certificates
from services.kit.errors import PermissionDenied
from services.kit.rpc import sockets
from services.kit.rpc.channels import open_channel
from services.kit.rpc.principal import SERVICE, Principal, set_principal
from services.kit.rpc.rpc_permissions import ALLOWED, PUBLIC_RPCS
from services.kit.rpc.server import Server
from services.kit.runtime.settings import ServiceSettings
from services.trust.app import App
from services.trust.settings import TrustSettings

NOBODY_S_UID = 65534
ADMIN = (("x-coterie-role", "admin"), ("x-coterie-subject", "adm_1"))
OPENERS: tuple[Callable[[ServiceSettings, str], object], ...] = (Server, open_channel)
METHODS = {
    f"/{service.full_name}/{method.name}": method
    for service in trust_pb2.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
CREATE_KEY = "/coterie_api.trust.v1.Registry/CreateKey"
AN_ADMIN_S_KEY = trust_pb2.CreateKeyRequest(role=words.PRINCIPAL_ROLE_ADMIN, name="intruder").SerializeToString()


@asynccontextmanager
async def registry(settings: TrustSettings, address: str) -> AsyncIterator[App]:
    """A real trust registry at an address."""
    set_principal(SERVICE)
    app = App(settings, address)
    await app.start()
    try:
        yield app
    finally:
        await app.stop()


async def status(channel: Any, method: str, metadata: Any = ADMIN, body: bytes = b"") -> grpc.StatusCode:
    """How a bare call ends, whatever its request means."""
    try:
        if METHODS[method].client_streaming:
            await channel.stream_unary(method)(iter([body]), timeout=10, metadata=metadata)
        else:
            await channel.unary_unary(method)(body, timeout=10, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_any_local_user_is_not_admin(tmp_path: Path) -> None:
    """No port listens; the socket's folder lets only its user in, whatever the folder around it allows."""
    settings = ServiceSettings(data_dir=tmp_path / "platform")
    environment = {**os.environ, "COTERIE_DATA_DIR": str(settings.data_dir), "COTERIE_LOG_LEVEL": "WARNING"}
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "services.trust", env=environment)
    try:
        set_principal(Principal("admin", "adm_1"))
        async with open_channel(settings, settings.trust_address) as channel:  # the platform's own user
            await mint(channel, wait_for_ready=True)
        path = Path(settings.trust_address.removeprefix(sockets.SCHEME))
        assert modes(path) == (stat.S_IFSOCK, 0o700)
        assert listening_ports(process.pid) == []
        if os.geteuid() == 0:
            for folder in (tmp_path, *tmp_path.parents, settings.data_dir):
                if folder not in (Path("/"), Path("/tmp")):
                    folder.chmod(0o755)  # as careless as it gets
            assert connect_as_other_user(path) == "PermissionError"
    finally:
        process.terminate()
        await process.wait()


def modes(path: Path) -> tuple[int, int]:
    """What kind of file it is, and who may enter its folder."""
    return stat.S_IFMT(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)


def connect_as_other_user(path: Path) -> str:
    """What another user of the machine gets from the socket."""
    script = (
        "import socket, sys\ntry:\n    socket.socket(socket.AF_UNIX).connect(sys.argv[1])\n"
        "except OSError as error:\n    print(type(error).__name__)"
    )
    asked = subprocess.run(
        ["/usr/bin/env", "python3", "-c", script, str(path)],
        user=NOBODY_S_UID,
        group=NOBODY_S_UID,
        cwd="/",
        env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return asked.stdout.strip()


def listening_ports(pid: int) -> list[str]:
    """Local ends of the TCP sockets on which a process listens."""
    own = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    rows = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
    ]
    return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0", "[::1]:0", "0.0.0.0:0"])
async def test_a_port_without_certificates_is_neither_served_nor_called(address: str) -> None:
    settings = ServiceSettings()
    for open_it in OPENERS:
        with pytest.raises(ValueError, match=r"open to all who .*leave the address out .*COTERIE_TLS_DIR"):
            open_it(settings, address)
    allowed = Server(ServiceSettings(insecure=True), "127.0.0.1:0")  # allowed explicitly
    assert allowed.port
    await allowed.stop()


@pytest.mark.parametrize("metadata", [(), (("x-coterie-role", ""),), (("x-coterie-role", "root"),)])
async def test_a_call_without_a_role_is_refused(tmp_path: Path, metadata: Any) -> None:
    """Every method is refused before its request is looked at; with a role the same call gets further."""
    settings = TrustSettings(data_dir=tmp_path)
    async with (
        registry(settings, settings.trust_address),
        grpc.aio.insecure_channel(settings.trust_address) as channel,
    ):
        for method in METHODS:
            assert await status(channel, method, metadata) is grpc.StatusCode.UNAUTHENTICATED, method
        assert await status(channel, CREATE_KEY, ADMIN, AN_ADMIN_S_KEY) is grpc.StatusCode.OK


async def test_who_has_no_key_yet_may_register_and_nothing_else(tmp_path: Path) -> None:
    settings = TrustSettings(data_dir=tmp_path)
    anonymous = (("x-coterie-role", "anonymous"),)
    async with (
        registry(settings, settings.trust_address),
        grpc.aio.insecure_channel(settings.trust_address) as channel,
    ):
        answers = {method: await status(channel, method, anonymous) for method in METHODS}
    refused = {method for method, code in answers.items() if code is grpc.StatusCode.UNAUTHENTICATED}
    assert set(METHODS) - refused <= PUBLIC_RPCS
    assert answers["/coterie_api.trust.v1.Registry/RegisterDevice"] in (
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNAUTHENTICATED,  # an enrolment token that was never issued
    )


async def test_with_tls_the_certificate_decides_and_topology_cannot_mint_keys(tmp_path: Path) -> None:
    """Each service calls exactly what its line of the table says, whatever role it claims."""
    services = (*ALLOWED, "trust", "stranger")
    folders = make_certificates(tmp_path / "certs", {name: ["localhost"] for name in services}, 30)
    settings = TrustSettings(data_dir=tmp_path, tls_dir=folders["trust"])
    async with registry(settings, "127.0.0.1:0") as app:
        for service in services:
            set_principal(Principal("admin", "adm_1"))
            own = ServiceSettings(tls_dir=folders[service])
            async with open_channel(own, f"localhost:{app.port}") as channel:
                for method in METHODS:
                    answer = await refusal(channel, method)
                    assert (answer == "not_for_this_service") == (method not in ALLOWED.get(service, ())), method
        async with open_channel(ServiceSettings(tls_dir=folders["topology"]), f"localhost:{app.port}") as channel:
            with pytest.raises(PermissionDenied, match=f"certificate of topology does not allow {CREATE_KEY}"):
                await mint(channel)
        async with open_channel(ServiceSettings(tls_dir=folders["gateway"]), f"localhost:{app.port}") as channel:
            assert await mint(channel)


async def mint(channel: Any, **options: Any) -> Any:
    """An admin's key, or the refusal."""
    return await channel.unary_unary(CREATE_KEY)(AN_ADMIN_S_KEY, timeout=60, **options)


async def refusal(channel: Any, method: str) -> str:
    """Reason why an empty call fails; empty when it does not."""
    try:
        if METHODS[method].client_streaming:
            await channel.stream_unary(method)(iter([b""]))
        else:
            # Batched calls pass the same interceptor, each by itself.
            await channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)(b"")
    except Exception as error:  # of any kind: only its reason matters here
        return str(getattr(error, "reason", ""))
    return ""


async def test_socket_folder_of_somebody_else_is_refused_and_open_one_is_closed(tmp_path: Path) -> None:
    address = sockets.address(tmp_path, "trust")
    folder = Path(address.removeprefix(sockets.SCHEME)).parent
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    sockets.make_private(address)
    assert folder.stat().st_mode & 0o777 == 0o700
    if os.geteuid() == 0:
        os.chown(folder, NOBODY_S_UID, NOBODY_S_UID)
        for open_it in OPENERS:
            with pytest.raises(ValueError, match="not a folder of this user"):
                open_it(ServiceSettings(), address)
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(ValueError, match="not a folder of this user"):
        sockets.make_private(address)


async def test_a_running_service_is_not_displaced_and_what_a_killed_one_left_is(tmp_path: Path) -> None:
    address = sockets.address(tmp_path, "trust")
    first = Server(ServiceSettings(), address)
    await first.start()
    with pytest.raises(ValueError, match="a server is already running at"):
        Server(ServiceSettings(), address)
    await first.stop()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(address.removeprefix(sockets.SCHEME))  # bound, and closed without being removed
    second = Server(ServiceSettings(), address)
    await second.start()
    await second.stop()


def test_a_long_data_folder_has_its_sockets_elsewhere_and_each_its_own(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    address = sockets.address(long, "aggregation")
    assert len(os.fsencode(address.removeprefix(sockets.SCHEME))) <= 100
    assert address != sockets.address(tmp_path / ("y" * 100), "aggregation")
    assert sockets.address(Path("/srv/c"), "trust") == "unix:/srv/c/sockets/trust.sock"
