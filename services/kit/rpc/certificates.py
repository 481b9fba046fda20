"""Certificates that are renewed while a service runs: files are read again when they have changed.

A server asks at every handshake, a channel now and then between calls. Several authorities may stand in `ca.pem`, one
after the other: a new one is accepted beside the old while certificates are replaced (`coterie certs`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from services.kit.observability.logs import get_logger

LOOK_SECONDS = 5.0
"""How often a channel looks whether its certificates have changed."""
_NAMES = ("key.pem", "cert.pem", "ca.pem")
_log = get_logger()


class Watched:
    """The three files of a folder, and whether they have changed since they were last asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._stamp()

    def _stamp(self) -> tuple[tuple[int, int], ...]:
        return tuple((result.st_mtime_ns, result.st_size) for result in ((self._folder / n).stat() for n in _NAMES))

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Key, certificate and authorities."""
        key, certificate, authorities = ((self._folder / name).read_bytes() for name in _NAMES)
        return key, certificate, authorities

    def has_changed(self) -> bool:
        """Whether the files are others than last time; False while they are being replaced."""
        try:
            now = self._stamp()
        except OSError:
            return False
        changed, self._seen = now != self._seen, now
        return changed


def ends_at(folder: Path | None) -> float:
    """When the first of a folder's certificates ends, the service's own or its authorities'; 0 = there are none."""
    if folder is None:
        return 0.0
    from cryptography import x509  # which services on one machine, without certificates, do without

    try:
        own, authorities = (x509.load_pem_x509_certificates((folder / name).read_bytes()) for name in _NAMES[1:])
    except (OSError, ValueError):  # being replaced, or for the log of whoever needs them
        return 0.0
    # Of several authorities the newest counts: an old one stands beside it while certificates are replaced.
    newest = max(authority.not_valid_after_utc for authority in authorities)
    return min(own[0].not_valid_after_utc, newest).timestamp()


def server_credentials(folder: Path) -> grpc.ServerCredentials:
    """Credentials of a server that demands certificates of its callers, read anew at a handshake after a change."""
    watched = Watched(folder)

    def configuration() -> Any:
        key, certificate, authorities = watched.read()
        return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=authorities)

    def fetch() -> Any:
        if not watched.has_changed():
            return None
        _log.info("certificates renewed", folder=str(folder))
        return configuration()

    return grpc.dynamic_ssl_server_credentials(configuration(), fetch, require_client_authentication=True)


def channel_credentials(folder: Path) -> grpc.ChannelCredentials:
    """Credentials of a client, from the same three files a server uses."""
    key, certificate, authorities = Watched(folder).read()
    return grpc.ssl_channel_credentials(authorities, key, certificate)


class Renewing:
    """A channel that is opened anew when its certificates have changed; calls under way end on the old one."""

    def __init__(self, folder: Path, open_: Callable[[], grpc.aio.Channel]) -> None:
        self._watched, self._open = Watched(folder), open_
        self._channels = [open_()]
        self._looked_at = time.monotonic()

    @property
    def current(self) -> grpc.aio.Channel:
        """The channel to call on now."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            if self._watched.has_changed():
                self._channels.append(self._open())
        return self._channels[-1]

    async def close(self) -> None:
        """Closes it, and those it replaced."""
        for channel in self._channels:
            await channel.close()

    def unary_unary(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """A method with one request."""
        return _Method(self, "unary_unary", arguments, options)

    def stream_unary(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """A method with a stream of requests."""
        return _Method(self, "stream_unary", arguments, options)

    def unary_stream(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """A method with a stream of replies."""
        return _Method(self, "unary_stream", arguments, options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)


class _Method:
    """A method of whichever channel is current."""

    def __init__(self, channel: Renewing, sort: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._channel, self._sort, self._arguments, self._options = channel, sort, arguments, options
        self._bound: tuple[grpc.aio.Channel, Any] | None = None

    def __call__(self, request: Any, **options: Any) -> Any:
        current = self._channel.current
        if self._bound is None or self._bound[0] is not current:
            self._bound = (current, getattr(current, self._sort)(*self._arguments, **self._options))
        return self._bound[1](request, **options)
