"""Certificates for mutual TLS between services: one authority, one certificate per service. Needs `cryptography`."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from coterie.privacy.files import write_private_file

AUTHORITY = "authority"
OLD = "old-ca.pem"
AUTHORITY_DAYS = 3650
_BACKDATE = timedelta(minutes=5)


def make_certificates(folder: Path, hosts: Mapping[str, Sequence[str]], days: int) -> dict[str, Path]:
    """One folder per service with ca.pem, cert.pem and key.pem (mode 0600), signed by the authority in `folder`.

    The certificate's common name is the service and decides which calls it may make. A renewed certificate keeps its
    host names beside those of `hosts`. Services accept a replaced authority until `forget_authority`.
    """
    authority_key, authority = _authority(folder)
    made = {}
    for service, names in hosts.items():
        key, place = ec.generate_private_key(ec.SECP256R1()), folder / service
        retained = dict.fromkeys((*names, *_names(place / "cert.pem")))
        certificate = _service_certificate(
            service, list(retained), days=days, key=key, authority_key=authority_key, authority=authority
        )
        write_private_file(place / "key.pem", _private_pem(key), replace=True)
        write_private_file(place / "cert.pem", certificate.public_bytes(serialization.Encoding.PEM), replace=True)
        write_private_file(place / "ca.pem", _accepted(folder), replace=True)
        made[service] = place
    return made


def replace_authority(folder: Path, services: Sequence[str]) -> dict[str, Path]:
    """Make a new authority and let every service accept both; certificates stay signed by the old one.

    Refuse a second replacement before the first is complete: certificates of the oldest authority would fail.
    """
    _authority(folder)
    place = folder / AUTHORITY
    if (place / OLD).exists():
        raise ValueError(
            "the authority was replaced before and the old one is still accepted: renew the certificates (without "
            "--new-authority), copy them to the services, then --forget-old"
        )
    for name, old in (("ca.pem", OLD), ("ca-key.pem", "old-ca-key.pem")):
        (place / name).replace(place / old)
    (place / "old-ca-key.pem").unlink()
    _authority(folder)
    return _distribute(folder, services)


def forget_authority(folder: Path, services: Sequence[str]) -> dict[str, Path]:
    """Let services accept only the current authority; refuse while a service has a certificate of another."""
    _, authority = _authority(folder)
    others = [service for service in services if not _is_signed_by(authority, folder / service / "cert.pem")]
    if others:
        raise ValueError(
            f"{', '.join(others)} would be refused: renew the certificates first (without --forget-old), and copy them"
        )
    (folder / AUTHORITY / OLD).unlink(missing_ok=True)
    return _distribute(folder, services)


def _is_signed_by(authority: x509.Certificate, file: Path) -> bool:
    if not file.exists():
        return True
    try:
        x509.load_pem_x509_certificate(file.read_bytes()).verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _names(file: Path) -> list[str]:
    """Return the host names and addresses of a certificate; empty without a file."""
    if not file.exists():
        return []
    extensions = x509.load_pem_x509_certificate(file.read_bytes()).extensions
    alternatives = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(alternative.value) for alternative in alternatives]


def _distribute(folder: Path, services: Sequence[str]) -> dict[str, Path]:
    folders = {service: folder / service for service in services if (folder / service / "cert.pem").exists()}
    for place in folders.values():
        write_private_file(place / "ca.pem", _accepted(folder), replace=True)
    return folders


def _accepted(folder: Path) -> bytes:
    """Return the certificates of the authority and of a replaced one that is still accepted."""
    old = folder / AUTHORITY / OLD
    return (folder / AUTHORITY / "ca.pem").read_bytes() + (old.read_bytes() if old.exists() else b"")


def _authority(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """Load the authority of a folder, or make one on the first call.

    Keep its key away from the services: its holder can impersonate any of them.
    """
    key_file, certificate_file = (folder / AUTHORITY / name for name in ("ca-key.pem", "ca.pem"))
    if key_file.exists() and certificate_file.exists():
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{key_file} is not an elliptic-curve key; move it away to make a new authority")
        return key, x509.load_pem_x509_certificate(certificate_file.read_bytes())
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Coterie services")])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(name, name, key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    write_private_file(key_file, _private_pem(key), replace=True)
    write_private_file(certificate_file, certificate.public_bytes(serialization.Encoding.PEM), replace=True)
    return key, certificate


def _service_certificate(
    service: str,
    names: Sequence[str],
    days: int,
    key: ec.EllipticCurvePrivateKey,
    authority_key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, service)])
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        _builder(subject, authority.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
