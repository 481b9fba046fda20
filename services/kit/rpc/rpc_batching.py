"""RPC batching: concurrent unary calls of one method travel as one RPC.

A gRPC call costs each end about 0.3 ms of CPU, too much for a thousand devices that poll at once. Calls of a batched
method that are made within `PAUSE_SECONDS`, or before the server has acknowledged the previous batch, share one RPC.
The server runs each call through the usual interceptor and streams results as they become ready. The first call after
a pause is sent at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from coterie_api.rpc_batching.v1 import rpc_batching_pb2 as pb
from coterie_api.rpc_batching.v1 import rpc_batching_pb2_grpc as rpc
from services.kit.runtime.batcher import Batcher

BATCHED_METHODS = frozenset(
    {
        "/coterie_api.trust.v1.Registry/Authenticate",
        "/coterie_api.aggregation.v1.Work/GetWork",
        "/coterie_api.aggregation.v1.Work/SubmitUpdate",
    }
)
"""Methods that every device calls in every round."""
RUN = f"/{pb.DESCRIPTOR.services_by_name['RpcBatching'].full_name}/Run"
PAUSE_SECONDS = 0.01
CALLS_PER_BATCH = 256
ACKNOWLEDGE_SECONDS = 0.5
"""Time after which a batch without acknowledgement no longer delays the next one."""
_STATUS = {status.value[0]: status for status in grpc.StatusCode}


class _PendingCall(NamedTuple):
    request: Any
    timeout_seconds: float
    metadata: tuple[tuple[str, str], ...]
    reply: asyncio.Future[Any]


class BatchCall:
    """A batched method of a channel; call it like the method itself.

    A server without the RpcBatching service receives separate calls.
    """

    def __init__(self, channel: Any, method: str, unbatched: Any, options: Mapping[str, Any]) -> None:
        self._method, self._unbatched = method, unbatched
        self._serialise, self._parse = options["request_serializer"], options["response_deserializer"]
        self._run = channel.unary_stream(
            RUN, request_serializer=pb.Batch.SerializeToString, response_deserializer=pb.Results.FromString
        )
        self._batcher = Batcher(self._start, size=CALLS_PER_BATCH, pause_seconds=PAUSE_SECONDS)
        self._is_supported = True
        self._under_way: set[asyncio.Task[None]] = set()

    def __call__(self, request: Any, *, timeout: float, metadata: Any) -> Awaitable[Any]:
        """Return a future of the reply."""
        if not self._is_supported:
            return self._unbatched(request, timeout=timeout, metadata=metadata)  # type: ignore[no-any-return]
        reply = asyncio.get_running_loop().create_future()
        self._batcher.add(_PendingCall(request, timeout, metadata, reply))
        return reply

    async def _start(self, calls: Sequence[_PendingCall]) -> list[Exception | None]:
        """Send a batch; return when the server acknowledges it or after `ACKNOWLEDGE_SECONDS`."""
        waiting = [call for call in calls if not call.reply.done()]
        if waiting:
            acknowledged = asyncio.Event()
            delivery = asyncio.create_task(self._deliver(waiting, acknowledged))
            self._under_way.add(delivery)
            delivery.add_done_callback(self._under_way.discard)
            with suppress(TimeoutError):
                async with asyncio.timeout(ACKNOWLEDGE_SECONDS):
                    await acknowledged.wait()
        return [None] * len(calls)

    async def _deliver(self, calls: list[_PendingCall], acknowledged: asyncio.Event) -> None:
        sent = [pb.Call(request=self._serialise(call.request), metadata=dict(call.metadata)) for call in calls]
        batch = pb.Batch(method=self._method, calls=sent)
        stream = self._run(batch, timeout=max(call.timeout_seconds for call in calls))
        unanswered, any_cancelled = len(calls), False

        def note_done(reply: asyncio.Future[Any]) -> None:
            nonlocal unanswered, any_cancelled
            unanswered, any_cancelled = unanswered - 1, any_cancelled or reply.cancelled()
            if not unanswered and any_cancelled:
                stream.cancel()

        for call in calls:
            call.reply.add_done_callback(note_done)
        try:
            async for results in stream:
                acknowledged.set()
                for result in results.results:
                    self._settle(calls[result.index].reply, result)
            _fail(calls, _rpc_error(grpc.StatusCode.UNAVAILABLE, "the server ended the batch before it answered"))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                self._is_supported = False
                await asyncio.gather(*(self._call_unbatched(call) for call in calls))
            else:
                _fail(calls, error)
        except asyncio.CancelledError:
            _fail(calls, _rpc_error(grpc.StatusCode.CANCELLED, "the call was cancelled"))
            if unanswered:
                raise
        finally:
            acknowledged.set()

    def _settle(self, reply: asyncio.Future[Any], result: pb.Result) -> None:
        if reply.done():  # its caller was cancelled
            return
        if not result.status:
            reply.set_result(self._parse(result.reply))
            return
        trailer = [
            (key, value if key.endswith("-bin") else value.decode()) for key, value in result.trailing_metadata.items()
        ]
        status = _STATUS.get(result.status, grpc.StatusCode.UNKNOWN)
        reply.set_exception(_rpc_error(status, result.message, trailer))

    async def _call_unbatched(self, call: _PendingCall) -> None:
        try:
            response = await self._unbatched(call.request, timeout=call.timeout_seconds, metadata=call.metadata)
        except grpc.aio.AioRpcError as error:
            _fail([call], error)
            return
        if not call.reply.done():
            call.reply.set_result(response)


def _fail(calls: Sequence[_PendingCall], error: grpc.aio.AioRpcError) -> None:
    for call in calls:
        if not call.reply.done():
            call.reply.set_exception(error)


def _rpc_error(status: grpc.StatusCode, message: str, trailer: Any = ()) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata(*trailer), message)


class _CallContext:
    """The servicer context of one call in a batch: its own metadata and abort, the batch's peer and deadline."""

    def __init__(self, batch: grpc.aio.ServicerContext[Any, Any], metadata: Mapping[str, str]) -> None:
        self._batch, self._metadata = batch, metadata
        self.failure = pb.Result(status=grpc.StatusCode.INTERNAL.value[0])

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return tuple(self._metadata.items())

    def time_remaining(self) -> float | None:
        return self._batch.time_remaining()

    def auth_context(self) -> Any:
        return self._batch.auth_context()

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> None:
        trailer = {key: value if isinstance(value, bytes) else value.encode() for key, value in trailing_metadata}
        self.failure = pb.Result(status=code.value[0], message=details, trailing_metadata=trailer)
        raise grpc.aio.AbortError


class RpcBatchingServicer(rpc.RpcBatchingServicer):
    """Runs batches. `handler_of` returns the handler of a method, interceptor included, or None."""

    def __init__(self, handler_of: Callable[[str], Any]) -> None:
        self._handler_of = handler_of

    async def Run(self, request: pb.Batch, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[pb.Results]:
        handler = self._handler_of(request.method) if request.method in BATCHED_METHODS else None
        if handler is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{request.method} cannot be called in batches")
        ready: list[pb.Result] = []
        has_results = asyncio.Event()

        async def run(index: int, call: pb.Call) -> None:
            result = await _run_call(handler, call, context)
            result.index = index
            ready.append(result)
            has_results.set()

        tasks = [asyncio.create_task(run(index, call)) for index, call in enumerate(request.calls)]
        unanswered = len(tasks)
        try:
            await asyncio.sleep(0)  # calls that do not wait finish here
            while unanswered:
                results, ready[:] = ready[:], []
                unanswered -= len(results)
                has_results.clear()
                yield pb.Results(results=results)  # the first, empty or not, is the acknowledgement
                if unanswered:
                    await has_results.wait()
        finally:
            for task in tasks:
                task.cancel()


async def _run_call(handler: Any, call: pb.Call, context: grpc.aio.ServicerContext[Any, Any]) -> pb.Result:
    """Run one call; its failure does not affect the others."""
    own = _CallContext(context, call.metadata)
    try:
        reply = await handler.unary_unary(handler.request_deserializer(call.request), own)
        return pb.Result(reply=handler.response_serializer(reply))
    except grpc.aio.AbortError:
        return own.failure
    except DecodeError:
        return pb.Result(
            status=grpc.StatusCode.INVALID_ARGUMENT.value[0], message="the bytes are not a request of this method"
        )
