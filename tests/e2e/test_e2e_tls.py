"""A platform as on several machines: services on ports, each with its own certificate; a task goes through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coterie_cli.certificates import make_certificates
from coterie_cli.processes import SERVICES, PlatformProcesses, free_ports
from tests.e2e.device_group import DeviceGroup
from tests.e2e.real_platform import RealPlatform


@dataclass(slots=True)
class Certified(PlatformProcesses):
    """Processes of which each is given its own folder of certificates."""

    folders: Mapping[str, Path] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)

    def start_one(self, name: str) -> None:
        self.environment = {**self.addresses, "COTERIE_TLS_DIR": str(self.folders[name])}
        PlatformProcesses.start_one(self, name)


def test_every_call_of_a_task_is_in_the_table_of_calls(tmp_path: Path) -> None:
    """Planned, priced, trained, settled and looked at over mutual TLS: nothing that is needed is refused."""
    folders = make_certificates(tmp_path / "certs", {name: ["localhost"] for name in SERVICES}, 30)
    *inner, gateway = free_ports(len(SERVICES))
    addresses = {
        f"COTERIE_{name.upper()}_ADDRESS": f"localhost:{port}" for name, port in zip(SERVICES, inner, strict=False)
    }
    platform = RealPlatform(tmp_path)
    platform.processes = Certified(tmp_path / "platform", {"gateway": gateway}, folders=folders, addresses=addresses)
    try:
        platform.start()
        device_group = DeviceGroup(platform)
        task = device_group.publish()
        device_group.start(task).wait()
        admin = platform.admin
        assert [item.state for item in admin.rounds(task)] == ["done"] * 3
        assert admin.plan(task).task_id == task
        assert admin.verify_book().sound
        assert admin.verify_audit().sound
        assert not list((tmp_path / "platform").glob("sockets/*"))
    finally:
        platform.stop()
