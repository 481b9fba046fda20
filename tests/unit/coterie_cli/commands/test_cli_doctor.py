"""`coterie doctor`: each thing that can be wrong is named with what to do."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner

from coterie_cli.certificates import make_certificates
from coterie_cli.commands import doctor
from coterie_cli.main import app


@pytest.fixture
def tls(tmp_path: Path) -> Path:
    return make_certificates(tmp_path / "certs", {"trust": ["trust"], "pricing": ["pricing"]}, 365)["trust"]


def test_a_sound_certificate_says_how_long(tls: Path) -> None:
    assert doctor.certificate(tls) == doctor.Finding("certificate", "ok", "good for 365 days")


@pytest.mark.parametrize(("days", "state", "says"), [(20, "warn", "ends in"), (400, "bad", "ended")])
def test_a_certificate_about_to_end_or_ended(
    tls: Path, monkeypatch: pytest.MonkeyPatch, days: int, state: str, says: str
) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + timedelta(days=345 if days == 20 else days)

    monkeypatch.setattr(doctor, "datetime", Later)
    finding = doctor.certificate(tls)
    assert (finding.state, says in finding.result, "coterie certs" in finding.advice) == (state, True, True)


def test_a_certificate_of_another_authority_is_found(tls: Path, tmp_path: Path) -> None:
    other = make_certificates(tmp_path / "other", {"trust": ["trust"]}, 365)["trust"]
    (tls / "ca.pem").write_bytes((other / "ca.pem").read_bytes())
    assert "not signed by its ca.pem" in doctor.certificate(tls).result
    (tls / "ca.pem").write_bytes((tls / "ca.pem").read_bytes() + (tls.parent / "authority" / "ca.pem").read_bytes())
    assert len(x509.load_pem_x509_certificates((tls / "ca.pem").read_bytes())) == 2
    assert doctor.certificate(tls).state == "ok"  # two authorities while one is replaced


def test_a_missing_file_is_named(tls: Path) -> None:
    (tls / "key.pem").unlink()
    assert "key.pem" in doctor.certificate(tls).result


def test_an_open_folder_is_bad_and_says_the_command(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    data.chmod(0o755)
    (result,) = doctor.folder(data)
    assert (result.state, result.advice) == ("bad", f"chmod 700 {data}")


@pytest.mark.parametrize(("seconds", "state"), [(0.0, "ok"), (-4.0, "ok"), (6.0, "bad"), (-3600.0, "bad")])
def test_a_clock_that_is_off(seconds: float, state: str) -> None:
    assert doctor.clock(seconds).state == state


def test_low_disk_space_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LITTLE_DISK", 1 << 60)
    (result,) = doctor.disk(tmp_path / "not" / "yet")
    assert (result.state, str(tmp_path) in result.result) == ("warn", True)


def test_without_a_platform_it_says_how_to_start_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ | {"COTERIE_DATABASE_URL": "", "COTERIE_BLOB_URL": ""})
    result = CliRunner().invoke(app, ["doctor", "--url", "http://127.0.0.1:1", "--json"])
    report = {load["check"]: load for load in json.loads(result.stdout)}
    assert result.exit_code == 0
    assert report["platform"]["state"] == "warn"
    assert report["database of trust"]["state"] == "ok"


def test_something_bad_ends_with_code_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)
    result = CliRunner().invoke(app, ["doctor", "--url", "http://127.0.0.1:1", "--data", str(data)])
    assert result.exit_code == 1
    assert "chmod 700" in result.output
