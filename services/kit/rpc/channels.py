"""Channels to other services: they add a deadline, the principal and the request id to every call and decode errors."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio

from services.kit.observability import traces
from services.kit.rpc import certificates, grpc_errors, sockets
from services.kit.rpc.principal import current_principal, current_request_id
from services.kit.rpc.rpc_batching import BATCHED_METHODS, BatchCall
from services.kit.rpc.server import MAX_MESSAGE_BYTES, tls_folder
from services.kit.runtime.settings import ServiceSettings

if TYPE_CHECKING:
    from opentelemetry.trace import Span

DEFAULT_DEADLINE_SECONDS = 20.0
TCP_OPTIONS: list[tuple[str, Any]] = [
    # Calls rotate over all replicas of a name; DNS is resolved again when one is gone.
    ("grpc.lb_policy_name", "round_robin"),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # Keepalive pings detect a machine that vanished while a call waits.
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
]
"""Options of channels to other machines."""


class _PlatformChannel:
    """A channel that adds metadata to every call and raises the platform's errors.

    It wraps the channel instead of intercepting it: an interceptor of grpc.aio costs a task per call.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def unary_unary(self, *arguments: Any, **options: Any) -> Callable[..., _DecodedCall]:
        """Return a method with one request; calls of methods in `BATCHED_METHODS` share RPCs."""
        path, method = arguments[0], self._channel.unary_unary(*arguments, **options)
        return _with_metadata(
            path, BatchCall(self._channel, path, method, options) if path in BATCHED_METHODS else method
        )

    def stream_unary(self, *arguments: Any, **options: Any) -> Callable[..., _DecodedCall]:
        """Return a method with a stream of requests."""
        return _with_metadata(arguments[0], self._channel.stream_unary(*arguments, **options))

    async def __aenter__(self) -> _PlatformChannel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)


class _DecodedCall:
    """A call that raises the platform's errors; otherwise the call itself."""

    def __init__(self, call: Any, span: Span | None) -> None:
        self._call, self._span = call, span

    def __await__(self) -> Generator[Any, None, Any]:
        code = grpc.StatusCode.OK
        try:
            return (yield from self._call.__await__())
        except grpc.aio.AioRpcError as error:
            code = error.code()
            raise grpc_errors.decode(error) from None
        except BaseException:
            code = grpc.StatusCode.CANCELLED
            raise
        finally:
            if self._span is not None:
                traces.ended(code.name, self._span)
                self._span.end()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)


def _with_metadata(path: str, method: Any) -> Callable[..., _DecodedCall]:
    def call(request: Any, *, timeout: float | None = None, metadata: Any = (), **options: Any) -> _DecodedCall:
        caller = current_principal()
        own_metadata = (
            *metadata,
            ("x-request-id", current_request_id()),
            ("x-coterie-role", caller.role),
            ("x-coterie-subject", caller.subject),
            ("x-coterie-owner", caller.owner_id),
        )
        span, traced = traces.calling(path) or (None, ())
        seconds = DEFAULT_DEADLINE_SECONDS if timeout is None else timeout
        return _DecodedCall(method(request, timeout=seconds, metadata=(*own_metadata, *traced), **options), span)

    return call


def _open(address: str, folder: Path, options: list[tuple[str, Any]]) -> grpc.aio.Channel:
    return grpc.aio.secure_channel(address, certificates.channel_credentials(folder), options=options)


def open_channel(settings: ServiceSettings, address: str, name: str = "") -> grpc.aio.Channel:
    """Open a channel to `address`; calls wait briefly for a service that restarts.

    name: the certificate's name where the address is an IP address.
    """
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.enable_retries", 0),
    ]
    if sockets.is_socket(address):
        sockets.make_private(address)
    else:
        options += TCP_OPTIONS
    if name:
        options.append(("grpc.ssl_target_name_override", name))
    folder = tls_folder(settings, address)
    if folder is None:
        channel = grpc.aio.insecure_channel(address, options=options)
    else:
        channel = cast(
            "grpc.aio.Channel", certificates.RenewingChannel(folder, partial(_open, address, folder, options))
        )
    return cast("grpc.aio.Channel", _PlatformChannel(channel))
