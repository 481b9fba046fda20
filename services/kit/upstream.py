"""Channels to other services: a deadline on every call, the caller and request id passed on, errors decoded."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import grpc
import grpc.aio

from services.kit import wire
from services.kit.caller import current_caller, current_request_id
from services.kit.server import MAX_MESSAGE_BYTES, read_tls
from services.kit.settings import ServiceSettings

DEFAULT_DEADLINE_SECONDS = 20.0


class _Courier(grpc.aio.UnaryUnaryClientInterceptor):
    """Adds what every call must carry and turns failures into the platform's errors."""

    async def intercept_unary_unary(
        self,
        continuation: Callable[[grpc.aio.ClientCallDetails, Any], Any],
        client_call_details: grpc.aio.ClientCallDetails,
        request: Any,
    ) -> Any:
        call = await continuation(_completed(client_call_details), request)
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise wire.decode(error) from None


class _StreamCourier(grpc.aio.StreamUnaryClientInterceptor):
    """The same for calls that stream their request."""

    async def intercept_stream_unary(
        self,
        continuation: Callable[[grpc.aio.ClientCallDetails, Any], Any],
        client_call_details: grpc.aio.ClientCallDetails,
        request_iterator: Any,
    ) -> Any:
        # gRPC takes a plain answer from a unary interceptor, but from this sort only a call.
        return _DecodedCall(await continuation(_completed(client_call_details), request_iterator))


class _DecodedCall:
    """A call whose failure is the platform's error; in all else the call itself."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __await__(self) -> Generator[Any, None, Any]:
        try:
            return (yield from self._call.__await__())
        except grpc.aio.AioRpcError as error:
            raise wire.decode(error) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)


def _completed(details: grpc.aio.ClientCallDetails) -> grpc.aio.ClientCallDetails:
    caller = current_caller()
    metadata = grpc.aio.Metadata(
        *(details.metadata or ()),
        ("x-request-id", current_request_id()),
        ("x-coterie-role", caller.role),
        ("x-coterie-subject", caller.subject),
        ("x-coterie-owner", caller.owner_id),
    )
    timeout = DEFAULT_DEADLINE_SECONDS if details.timeout is None else details.timeout
    return grpc.aio.ClientCallDetails(details.method, timeout, metadata, details.credentials, details.wait_for_ready)


def open_channel(settings: ServiceSettings, address: str) -> grpc.aio.Channel:
    """A channel to `address`; calls wait briefly for a service that is just restarting."""
    options = [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.enable_retries", 0),
    ]
    interceptors = [_Courier(), _StreamCourier()]
    if settings.tls_dir is None:
        return grpc.aio.insecure_channel(address, options=options, interceptors=interceptors)
    return grpc.aio.secure_channel(address, read_tls(settings.tls_dir), options=options, interceptors=interceptors)
