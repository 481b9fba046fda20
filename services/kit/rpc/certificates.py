"""TLS certificates that are reloaded when their files change.

A server checks the files at every handshake, a channel every few seconds between calls. `ca.pem` may hold several
authorities, so that a new one is accepted beside the old while certificates are replaced (`coterie certs`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from services.kit.observability.logs import get_logger

CHECK_SECONDS = 5.0
"""Interval between a channel's checks of its certificate files."""
_NAMES = ("key.pem", "cert.pem", "ca.pem")
_log = get_logger()


class CertificateFolder:
    """The three certificate files of a folder, and whether they changed since the last check."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._stamp()

    def _stamp(self) -> tuple[tuple[int, int], ...]:
        return tuple((result.st_mtime_ns, result.st_size) for result in ((self._folder / n).stat() for n in _NAMES))

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Return key, certificate and authorities."""
        key, certificate, authorities = ((self._folder / name).read_bytes() for name in _NAMES)
        return key, certificate, authorities

    def has_changed(self) -> bool:
        """Whether the files changed since the last check; False while they are being replaced."""
        try:
            now = self._stamp()
        except OSError:
            return False
        changed, self._seen = now != self._seen, now
        return changed


def ends_at(folder: Path | None) -> float:
    """Return when the first certificate expires, the service's own or its authorities', in Unix seconds; 0 = none."""
    if folder is None:
        return 0.0
    from cryptography import x509  # not needed without certificates

    try:
        own, authorities = (x509.load_pem_x509_certificates((folder / name).read_bytes()) for name in _NAMES[1:])
    except (OSError, ValueError):  # being replaced, or unusable: the handshake reports that
        return 0.0
    # The newest authority counts: an old one remains beside it while certificates are replaced.
    newest = max(authority.not_valid_after_utc for authority in authorities)
    return min(own[0].not_valid_after_utc, newest).timestamp()


def server_credentials(folder: Path) -> grpc.ServerCredentials:
    """Return server credentials that require client certificates; a handshake after a change reloads the files."""
    files = CertificateFolder(folder)

    def configuration() -> Any:
        key, certificate, authorities = files.read()
        return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=authorities)

    def fetch() -> Any:
        if not files.has_changed():
            return None
        _log.info("certificates renewed", folder=str(folder))
        return configuration()

    return grpc.dynamic_ssl_server_credentials(configuration(), fetch, require_client_authentication=True)


def channel_credentials(folder: Path) -> grpc.ChannelCredentials:
    """Return client credentials from the same three files that a server uses."""
    key, certificate, authorities = CertificateFolder(folder).read()
    return grpc.ssl_channel_credentials(authorities, key, certificate)


class RenewingChannel:
    """A channel that reconnects when its certificates change; running calls finish on the old connection."""

    def __init__(self, folder: Path, open_: Callable[[], grpc.aio.Channel]) -> None:
        self._files, self._open = CertificateFolder(folder), open_
        self._channels = [open_()]
        self._checked_at = time.monotonic()

    @property
    def current(self) -> grpc.aio.Channel:
        """The channel for new calls."""
        now = time.monotonic()
        if now - self._checked_at >= CHECK_SECONDS:
            self._checked_at = now
            if self._files.has_changed():
                self._channels.append(self._open())
        return self._channels[-1]

    async def close(self) -> None:
        """Close the channel and those it replaced."""
        for channel in self._channels:
            await channel.close()

    def unary_unary(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """Return a method with one request and one reply."""
        return _Method(self, "unary_unary", arguments, options)

    def stream_unary(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """Return a method with a stream of requests."""
        return _Method(self, "stream_unary", arguments, options)

    def unary_stream(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """Return a method with a stream of replies."""
        return _Method(self, "unary_stream", arguments, options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)


class _Method:
    """A method of the current channel."""

    def __init__(
        self, channel: RenewingChannel, kind: str, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        self._channel, self._kind, self._arguments, self._options = channel, kind, arguments, options
        self._bound: tuple[grpc.aio.Channel, Any] | None = None

    def __call__(self, request: Any, **options: Any) -> Any:
        current = self._channel.current
        if self._bound is None or self._bound[0] is not current:
            self._bound = (current, getattr(current, self._kind)(*self._arguments, **self._options))
        return self._bound[1](request, **options)
