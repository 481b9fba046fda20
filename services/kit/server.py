"""The gRPC server every service runs: errors mapped once, deadlines demanded, health, reflection, graceful drain."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from services.kit import wire
from services.kit.caller import SERVICE, Caller, set_caller, set_request_id
from services.kit.errors import CoterieError
from services.kit.logs import get_logger
from services.kit.metrics import RPC_SECONDS, RPC_TOTAL
from services.kit.settings import ServiceSettings

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_FREE_OF_DEADLINE = ("/grpc.health.", "/grpc.reflection.")
_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
]
_log = get_logger()


class Gatekeeper(grpc.aio.ServerInterceptor):
    """Sets the caller and request id, demands a deadline, times the call and maps errors: once, for every RPC."""

    def __init__(self) -> None:
        self._guarded: dict[str, Any] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        details: grpc.HandlerCallDetails,
    ) -> Any:
        known = self._guarded.get(details.method)
        if known is not None:
            return known
        handler = await continuation(details)
        if handler is None or details.method.startswith(_FREE_OF_DEADLINE):
            return handler
        if handler.request_streaming:
            sort, behaviour = grpc.stream_unary_rpc_method_handler, handler.stream_unary
        else:
            sort, behaviour = grpc.unary_unary_rpc_method_handler, handler.unary_unary
        guarded = self._guard(behaviour, details.method)
        self._guarded[details.method] = sort(guarded, handler.request_deserializer, handler.response_serializer)
        return self._guarded[details.method]

    def _guard(self, behaviour: Callable[[Any, Any], Awaitable[Any]], method: str) -> Callable[[Any, Any], Any]:
        seconds = RPC_SECONDS.labels(method)

        async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            started = time.perf_counter()
            metadata = dict(context.invocation_metadata() or ())
            set_request_id(str(metadata.get("x-request-id", "")))
            set_caller(
                Caller(
                    str(metadata.get("x-coterie-role", SERVICE.role)),
                    str(metadata.get("x-coterie-subject", SERVICE.subject)),
                    str(metadata.get("x-coterie-owner", "")),
                )
            )
            code = grpc.StatusCode.OK
            try:
                if context.time_remaining() is None:
                    code = grpc.StatusCode.INVALID_ARGUMENT
                    await context.abort(code, "every call needs a deadline; set a timeout on the client")
                return await behaviour(request, context)
            except CoterieError as error:
                code = wire.STATUS_OF_KIND.get(wire.kind_of(error), grpc.StatusCode.INTERNAL)
                await context.abort(code, error.message, wire.trailer(error))
            except (grpc.aio.AbortError, asyncio.CancelledError):
                raise
            except Exception:
                code = grpc.StatusCode.INTERNAL
                _log.exception("rpc failed", method=method)
                await context.abort(code, "an unexpected fault; the log has it under this request id")
            finally:
                seconds.observe(time.perf_counter() - started)
                RPC_TOTAL.labels(method, code.name).inc()

        return guarded


class Server:
    """A gRPC server with the kit's manners. `add` servicers, `start`, then `stop` or `run_until_signal`."""

    def __init__(self, settings: ServiceSettings, address: str) -> None:
        self._settings = settings
        self._server = grpc.aio.server(interceptors=[Gatekeeper()], options=_OPTIONS, maximum_concurrent_rpcs=None)
        self._health = HealthServicer()
        self._names: list[str] = []
        self.port = self._bind(address)
        self.stopping = asyncio.Event()

    def _bind(self, address: str) -> int:
        folder = self._settings.tls_dir
        if folder is None:
            _demand_loopback(address, self._settings.insecure)
            return self._server.add_insecure_port(address)
        key, certificate, authority = (folder / name for name in ("key.pem", "cert.pem", "ca.pem"))
        credentials = grpc.ssl_server_credentials(
            [(key.read_bytes(), certificate.read_bytes())],
            root_certificates=authority.read_bytes(),
            require_client_auth=True,
        )
        return self._server.add_secure_port(address, credentials)

    def add(self, adder: Callable[[Any, Any], None], servicer: object, name: str) -> None:
        """Adds a servicer under its full service name."""
        adder(servicer, self._server)
        self._names.append(name)

    async def start(self) -> None:
        """Begins to answer; health says SERVING."""
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (*self._names, reflection.SERVICE_NAME, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name),
            self._server,
        )
        await self._server.start()
        for name in ("", *self._names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def stop(self) -> None:
        """Says NOT_SERVING, wakes long polls, lets open calls end within the drain time, and stops."""
        await self._health.enter_graceful_shutdown()
        self.stopping.set()
        await self._server.stop(self._settings.drain_seconds)


async def run_until_signal(stoppers: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Waits for SIGTERM or SIGINT, then calls each stopper in order."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
    for stopper in stoppers:
        await stopper()


def _demand_loopback(address: str, insecure: bool) -> None:
    host = address.rpartition(":")[0].strip("[]")
    if host not in ("127.0.0.1", "localhost", "::1") and not insecure:
        raise ValueError(
            f"gRPC on {address} leaves loopback: set COTERIE_TLS_DIR to a folder with ca.pem, cert.pem and key.pem "
            "(`coterie certs` makes one), or COTERIE_INSECURE=1 on a network nobody else can reach"
        )


def read_tls(folder: Path) -> grpc.ChannelCredentials:
    """Client credentials from the same three files a server uses."""
    return grpc.ssl_channel_credentials(
        root_certificates=(folder / "ca.pem").read_bytes(),
        private_key=(folder / "key.pem").read_bytes(),
        certificate_chain=(folder / "cert.pem").read_bytes(),
    )
