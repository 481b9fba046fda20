"""gRPC server with authentication, deadlines, metrics, error mapping, health, reflection and graceful shutdown."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from coterie.version import VERSION, commit
from coterie_api.rpc_batching.v1 import rpc_batching_pb2_grpc
from services.kit.errors import CoterieError, PermissionDenied, Unauthenticated
from services.kit.observability import traces
from services.kit.observability.latency import LATENCY
from services.kit.observability.logs import get_logger
from services.kit.observability.metrics import RPC_SECONDS, RPC_TOTAL
from services.kit.rpc import certificates, grpc_errors, rpc_permissions, sockets
from services.kit.rpc.principal import ANONYMOUS, ROLES, Principal, set_principal, set_request_id
from services.kit.rpc.rpc_batching import RUN, RpcBatchingServicer
from services.kit.runtime.settings import ServiceSettings

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_WITHOUT_DEADLINE = ("/grpc.health.", "/grpc.reflection.", RUN)
"""Methods that need no deadline. Each call of a batch is checked separately."""
SLOW_SECONDS = 2.0
_IDS = ("task_id", "round", "device_id")
_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
    # Callers resolve replicas with every new connection, so they find an added one within a minute. Running calls
    # finish, the longest plan included.
    ("grpc.max_connection_age_ms", 60_000),
    ("grpc.max_connection_age_grace_ms", 600_000),
    # Callers send keepalive pings while they wait; strikes would close connections during the longest plans.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
]
_log = get_logger()


class Health(health.aio.HealthServicer):
    """Health checks that also report the replica's name, version, commit, certificate expiry and latency."""

    def __init__(self, folder: Path | None, replica: str) -> None:
        super().__init__()
        self._folder, self._replica = folder, replica

    async def Check(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """Return whether the service serves; the initial metadata has the rest."""
        status: dict[str, object] = {"name": self._replica, "version": VERSION, "commit": commit()}
        status |= {**LATENCY.summary(), "certificate_ends_at": certificates.ends_at(self._folder)}
        texts = {f"coterie-{name.replace('_', '-')}": str(value) for name, value in status.items()}
        metadata = tuple((name, value.encode("ascii", "replace").decode()) for name, value in texts.items())
        await context.send_initial_metadata(metadata)
        return await super().Check(request, context)


class NoRole(Unauthenticated):
    """The call names no role, or one that may not call this method."""


class NotForThisService(PermissionDenied):
    """The service that the caller's certificate names may not call this method."""


class AuthInterceptor(grpc.aio.ServerInterceptor):
    """Sets the principal and request id, requires a deadline, measures the call and maps errors, for every RPC.

    A call without a role is refused. With `check_certificates`, `rpc_permissions` limits each service's calls.
    """

    def __init__(self, *, check_certificates: bool) -> None:
        self._check_certificates = check_certificates
        self._guarded: dict[str, Any] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        details: grpc.HandlerCallDetails,
    ) -> Any:
        cached = self._guarded.get(details.method)
        if cached is not None:
            return cached
        handler = await continuation(details)
        if handler is None or details.method.startswith(_WITHOUT_DEADLINE):
            return handler
        return self.guarded(details.method, handler)

    def guarded(self, method: str, handler: Any) -> Any:
        """Wrap a method's handler; cached by method."""
        cached = self._guarded.get(method)
        if cached is not None:
            return cached
        if handler.request_streaming:
            make_handler, behaviour = grpc.stream_unary_rpc_method_handler, handler.stream_unary
        else:
            make_handler, behaviour = grpc.unary_unary_rpc_method_handler, handler.unary_unary
        guarded = self._guard(behaviour, method)
        if traces.are_on():
            guarded = _traced(guarded, method)
        self._guarded[method] = make_handler(guarded, handler.request_deserializer, handler.response_serializer)
        return self._guarded[method]

    def _guard(self, behaviour: Callable[[Any, Any], Awaitable[Any]], method: str) -> Callable[[Any, Any], Any]:
        seconds = RPC_SECONDS.labels(method)

        async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            started = time.perf_counter()
            metadata = {str(name): str(value) for name, value in context.invocation_metadata() or ()}
            set_request_id(metadata.get("x-request-id", ""))
            code = grpc.StatusCode.OK
            try:
                self._admit(method, metadata, context)
                if context.time_remaining() is None:
                    code = grpc.StatusCode.INVALID_ARGUMENT
                    await context.abort(code, "every call needs a deadline; set a timeout on the client")
                return await behaviour(request, context)
            except CoterieError as error:
                code = grpc_errors.STATUS_OF_KIND.get(grpc_errors.kind_of(error), grpc.StatusCode.INTERNAL)
                traces.note(reason=error.reason)
                _log.info("refused", method=method, reason=error.reason, message=error.message, **_ids(request))
                await context.abort(code, error.message, grpc_errors.trailing_metadata_of(error))
            except grpc.aio.AbortError:
                raise
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                raise
            except Exception:
                code = grpc.StatusCode.INTERNAL
                _log.exception("rpc failed", method=method)
                await context.abort(code, "an unexpected error; the log has it under this request id")
            finally:
                took = time.perf_counter() - started
                seconds.observe(took)
                if not getattr(request, "wait_seconds", 0):
                    LATENCY.add(took)
                    if took > SLOW_SECONDS:
                        _log.warning("slow call", method=method, seconds=round(took, 2), **_ids(request))
                RPC_TOTAL.labels(method, code.name).inc()
                traces.ended(code.name)

        return guarded

    def _admit(self, method: str, metadata: Mapping[str, str], context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Set the principal that the metadata names, if the role and the certificate may call this method."""
        role = metadata.get("x-coterie-role", "")
        if role not in ROLES or (role == ANONYMOUS.role and method not in rpc_permissions.PUBLIC_RPCS):
            raise NoRole("the call names no role that may do this: only the platform's services may call each other")
        if self._check_certificates:
            names = [name.decode(errors="replace") for name in context.auth_context().get("x509_common_name", ())]
            if not any(method in rpc_permissions.ALLOWED.get(name, ()) for name in names):
                raise NotForThisService(
                    f"the certificate of {' or '.join(names) or 'no service'} does not allow {method}"
                )
        set_principal(Principal(role, metadata.get("x-coterie-subject", ""), metadata.get("x-coterie-owner", "")))


def _traced(guarded: Callable[[Any, Any], Any], method: str) -> Callable[[Any, Any], Any]:
    """Record each call as a span of its caller's trace."""

    async def traced(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        metadata = {str(name): str(value) for name, value in context.invocation_metadata() or ()}
        with traces.answering(method, metadata):
            traces.note(**_ids(request))
            return await guarded(request, context)

    return traced


def _ids(request: Any) -> dict[str, str | int]:
    """Return the ids in a request, for the log."""
    ids = {name: getattr(request, name, None) for name in _IDS}
    return {name.removesuffix("_id"): value for name, value in ids.items() if value}


class Handlers:
    """The server that generated code adds methods to; it stores their handlers by full name."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server
        self.by_method: dict[str, Any] = {}

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Add the methods of a service."""
        self.by_method |= {f"/{service}/{name}": handler for name, handler in handlers.items()}
        self._server.add_registered_method_handlers(service, handlers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


class Server:
    """A gRPC server. `add` servicers, `start`, then `stop` or `run_until_signal`."""

    def __init__(self, settings: ServiceSettings, address: str) -> None:
        self._settings = settings
        self._interceptor = AuthInterceptor(check_certificates=tls_folder(settings, address) is not None)
        self._server = grpc.aio.server(interceptors=[self._interceptor], options=_OPTIONS, maximum_concurrent_rpcs=None)
        self._handlers = Handlers(self._server)
        self._health = Health(tls_folder(settings, address), settings.replica)
        self._names: list[str] = []
        self.port = self._bind(address)
        self.stopping = asyncio.Event()

    def _bind(self, address: str) -> int:
        folder = tls_folder(self._settings, address)
        if sockets.is_socket(address):
            sockets.claim(address)
        if folder is None:
            return self._server.add_insecure_port(address)
        return self._server.add_secure_port(address, certificates.server_credentials(folder))

    def add(self, adder: Callable[[Any, Any], None], servicer: object, name: str) -> None:
        """Add a servicer under its full service name."""
        adder(servicer, self._handlers)
        self._names.append(name)

    def _guarded(self, method: str) -> Any:
        handler = self._handlers.by_method.get(method)
        return None if handler is None else self._interceptor.guarded(method, handler)

    async def start(self) -> None:
        """Start to serve; health checks return SERVING."""
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        rpc_batching_pb2_grpc.add_RpcBatchingServicer_to_server(RpcBatchingServicer(self._guarded), self._server)
        reflection.enable_server_reflection(
            (*self._names, reflection.SERVICE_NAME, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name),
            self._server,
        )
        await self._server.start()
        for name in ("", *self._names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def stop(self) -> None:
        """Report NOT_SERVING, wake long polls, let running calls finish within the drain time, and stop."""
        await self._health.enter_graceful_shutdown()
        self.stopping.set()
        await self._server.stop(self._settings.drain_seconds)


async def run_until_signal(stoppers: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Wait for SIGTERM or SIGINT, then call the stoppers in order."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
    for stopper in stoppers:
        await stopper()


def tls_folder(settings: ServiceSettings, address: str) -> Path | None:
    """Return the certificate folder for `address`; None for Unix sockets. Raise for a port without certificates."""
    if sockets.is_socket(address):
        return None
    if settings.tls_dir is None and not settings.insecure:
        raise ValueError(
            f"gRPC at {address} would be open to all who reach that port, on loopback to every user of this machine: "
            "leave the address out to use Unix sockets, set COTERIE_TLS_DIR to a folder with ca.pem, cert.pem and "
            "key.pem (`coterie certs` makes one), or set COTERIE_INSECURE=1 on a network that only you can reach"
        )
    return settings.tls_dir
