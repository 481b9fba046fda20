"""Certificates and their authority are replaced while services speak to each other, without a gap."""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from coterie_api.topology.v1 import topology_pb2 as pb
from coterie_api.topology.v1 import topology_pb2_grpc as rpc
from coterie_cli.certificates import forget_authority, make_certificates, replace_authority
from services.kit import errors
from services.kit.rpc import certificates
from services.kit.rpc.channels import open_channel
from services.kit.rpc.principal import SERVICE, set_principal
from services.kit.rpc.replicas import ask
from services.kit.rpc.server import Server
from services.kit.runtime.settings import ServiceSettings

NAME = pb.DESCRIPTOR.services_by_name["Topology"].full_name
HOSTS = {"topology": ["localhost"], "gateway": ["localhost"]}


class Quiet(rpc.TopologyServicer):
    async def PutCell(self, request: pb.Cell, context: Any) -> pb.Cell:
        return pb.Cell(id="here")


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[str]:
    server = Server(ServiceSettings(tls_dir=folder), "127.0.0.1:0")
    server.add(rpc.add_TopologyServicer_to_server, Quiet(), NAME)  # type: ignore[abstract]
    await server.start()
    yield f"localhost:{server.port}"
    await server.stop()


async def asked(channel: Any) -> str:
    set_principal(SERVICE)
    return str((await rpc.TopologyStub(channel).PutCell(pb.Cell(id="x"), timeout=20.0)).id)


async def ask_over_new_channel(folder: Path, address: str) -> str:
    """An answer over a connection made now."""
    channel = open_channel(ServiceSettings(tls_dir=folder), address)
    try:
        return await asked(channel)
    finally:
        await channel.close()


async def test_a_new_authority_replaces_the_old_one_while_services_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "CHECK_SECONDS", 0.0)
    place = tmp_path / "certs"
    folders = make_certificates(place, HOSTS, 30)
    outdated = shutil.copytree(folders["gateway"], tmp_path / "outdated")
    async with served(folders["topology"]) as address:
        channel = open_channel(ServiceSettings(tls_dir=folders["gateway"]), address)
        assert await asked(channel) == "here"
        steps: list[Callable[[], object]] = [
            lambda: replace_authority(place, list(HOSTS)),
            lambda: make_certificates(place, HOSTS, 30),
            lambda: forget_authority(place, list(HOSTS)),
        ]
        for step in steps:
            step()
            assert await asked(channel) == "here"
            assert await ask_over_new_channel(folders["gateway"], address) == "here"
        with pytest.raises(errors.Unavailable):
            await ask_over_new_channel(outdated, address)
        await channel.close()


async def test_while_both_authorities_are_accepted_old_certificates_work(tmp_path: Path) -> None:
    place = tmp_path / "certs"
    folders = make_certificates(place, HOSTS, 30)
    async with served(folders["topology"]) as address:
        replace_authority(place, list(HOSTS))
        not_yet = shutil.copytree(folders["gateway"], tmp_path / "not-yet")
        make_certificates(place, HOSTS, 30)
        assert await ask_over_new_channel(not_yet, address) == "here"
        assert await ask_over_new_channel(folders["gateway"], address) == "here"


def test_files_that_are_being_replaced_have_not_changed(tmp_path: Path) -> None:
    folder = make_certificates(tmp_path, HOSTS, 30)["gateway"]
    watched = certificates.CertificateFolder(folder)
    assert not watched.has_changed()
    (folder / "cert.pem").rename(folder / "excluded_because")
    assert not watched.has_changed()
    (folder / "excluded_because").rename(folder / "cert.pem")
    make_certificates(tmp_path, HOSTS, 30)
    assert watched.has_changed()
    assert not watched.has_changed()


def test_the_old_authority_s_key_is_gone_and_its_certificate_kept_apart(tmp_path: Path) -> None:
    make_certificates(tmp_path, HOSTS, 30)
    replace_authority(tmp_path, list(HOSTS))
    assert {path.name for path in (tmp_path / "authority").iterdir()} == {"ca.pem", "ca-key.pem", "old-ca.pem"}
    assert (tmp_path / "gateway" / "ca.pem").read_text().count("BEGIN CERTIFICATE") == 2
    make_certificates(tmp_path, HOSTS, 30)
    forget_authority(tmp_path, list(HOSTS))
    assert (tmp_path / "gateway" / "ca.pem").read_text().count("BEGIN CERTIFICATE") == 1


def test_steps_that_would_lock_services_out_are_refused(tmp_path: Path) -> None:
    make_certificates(tmp_path, HOSTS, 30)
    forget_authority(tmp_path, list(HOSTS))  # nothing was replaced
    replace_authority(tmp_path, list(HOSTS))
    for step in (replace_authority, forget_authority):
        with pytest.raises(ValueError, match="renew the certificates"):
            step(tmp_path, list(HOSTS))
    accepted = (tmp_path / "gateway" / "ca.pem").read_text()
    assert accepted.count("BEGIN CERTIFICATE") == 2
    make_certificates(tmp_path, HOSTS, 30)
    forget_authority(tmp_path, list(HOSTS))
    replace_authority(tmp_path, list(HOSTS))


def test_a_renewed_certificate_keeps_the_host_names_it_had(tmp_path: Path) -> None:
    make_certificates(tmp_path, {"trust": ["trust", "trust.internal", "10.0.0.7"]}, 30)
    place = make_certificates(tmp_path, {"trust": ["trust", "localhost"]}, 30)["trust"]
    result = x509.load_pem_x509_certificate((place / "cert.pem").read_bytes()).extensions
    names = result.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["trust", "localhost", "trust.internal", "10.0.0.7"]


async def test_a_service_says_when_its_certificates_end(tmp_path: Path) -> None:
    folders = make_certificates(tmp_path / "certs", HOSTS, 30)
    assert certificates.ends_at(folders["topology"]) == pytest.approx(time.time() + 30 * 86_400, abs=86_400)
    assert certificates.ends_at(None) == certificates.ends_at(tmp_path / "nowhere") == 0.0
    async with served(folders["topology"]) as address:
        channel = open_channel(ServiceSettings(tls_dir=folders["gateway"]), address)
        status = await ask(channel)
        assert status["state"] == "serving"
        assert status["certificate_ends_at"] == certificates.ends_at(folders["topology"])
        await channel.close()
