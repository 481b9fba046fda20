"""Many calls in one: what is asked of a service for many devices at the same moment travels together.

A call over gRPC costs each end a third of a millisecond of its processor, whatever it is about. A thousand devices that
ask for work and deliver at the same time would cost two thousand of them. Calls of one method that come within
`PAUSE_SECONDS`, or before the service has taken the last bundle, go as one; each is made, guarded and answered on its
own, and answers that are ready together come back together. The first call after a pause goes at once, so that nobody
waits where there is little to do, and the busier both ends are the more travels together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from coterie_api.bundles.v1 import bundles_pb2 as pb
from coterie_api.bundles.v1 import bundles_pb2_grpc as rpc
from services.kit.rpc.grpc_errors import DETAILS_KEY, REASON_KEY

CARRIED = frozenset(
    {
        "/coterie_api.trust.v1.Registry/Authenticate",
        "/coterie_api.aggregation.v1.Work/GetWork",
        "/coterie_api.aggregation.v1.Work/SubmitUpdate",
    }
)
"""Methods that are called for every device in every round."""
CARRY = f"/{pb.DESCRIPTOR.services_by_name['Bundles'].full_name}/Carry"
PAUSE_SECONDS = 0.01
MOST_AT_ONCE = 256
TAKEN_SECONDS = 0.5
"""A server that has not taken a bundle by then (it is stopped, or its link is dead) holds up no others."""
_STATUS = {status.value[0]: status for status in grpc.StatusCode}


class _Asked(NamedTuple):
    """A call that waits to be sent, or for its answer."""

    request: Any
    seconds: float
    metadata: tuple[tuple[str, str], ...]
    answer: asyncio.Future[Any]


class Carrier:
    """One method of one channel, called for many at once; is called like the method itself.

    A server without bundles, which is one of another version or a test's, is called for each alone.
    """

    def __init__(self, channel: Any, method: str, alone: Any, options: Mapping[str, Any]) -> None:
        self._method, self._alone = method, alone
        self._write, self._read = options["request_serializer"], options["response_deserializer"]
        self._carry = channel.unary_stream(
            CARRY, request_serializer=pb.Bundle.SerializeToString, response_deserializer=pb.Answers.FromString
        )
        self._waiting: list[_Asked] = []
        self._sent_at = -PAUSE_SECONDS
        self._is_due = False
        self._untaken = 0
        self._knows_bundles = True
        self._under_way: set[asyncio.Task[None]] = set()

    def __call__(self, request: Any, *, timeout: float, metadata: Any) -> Awaitable[Any]:
        """The reply to come."""
        if not self._knows_bundles:
            return self._alone(request, timeout=timeout, metadata=metadata)  # type: ignore[no-any-return]
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._waiting.append(_Asked(request, timeout, metadata, answer))
        self._send_soon()
        return answer

    def _send_soon(self) -> None:
        if self._waiting and not self._is_due and not self._untaken:
            self._is_due = True
            asyncio.get_running_loop().call_at(self._sent_at + PAUSE_SECONDS, self._send)

    def _send(self) -> None:
        self._is_due, self._sent_at = False, asyncio.get_running_loop().time()
        waiting, self._waiting = [asked for asked in self._waiting if not asked.answer.done()], []
        for start in range(0, len(waiting), MOST_AT_ONCE):
            sending = asyncio.create_task(self._deliver(waiting[start : start + MOST_AT_ONCE], self._hold()))
            self._under_way.add(sending)
            sending.add_done_callback(self._under_way.discard)

    def _hold(self) -> Callable[[], None]:
        """Holds further calls back until what is returned is called, or patience ends."""
        held = True
        self._untaken += 1

        def free() -> None:
            nonlocal held
            if held:
                held = False
                self._untaken -= 1
                self._send_soon()

        asyncio.get_running_loop().call_later(TAKEN_SECONDS, free)
        return free

    async def _deliver(self, asked: list[_Asked], taken: Callable[[], None]) -> None:
        calls = [pb.Call(request=self._write(each.request), metadata=dict(each.metadata)) for each in asked]
        bundle = pb.Bundle(method=self._method, calls=calls)
        call = self._carry(bundle, timeout=max(each.seconds for each in asked))
        left, anybody_gone = len(asked), False

        def one_less(answer: asyncio.Future[Any]) -> None:
            nonlocal left, anybody_gone
            left, anybody_gone = left - 1, anybody_gone or answer.cancelled()
            if not left and anybody_gone:  # nobody waits for the rest
                call.cancel()

        for each in asked:
            each.answer.add_done_callback(one_less)
        try:
            async for some in call:
                taken()
                for answer in some.answers:
                    self._settle(asked[answer.place].answer, answer)
            _fail(asked, _fault(grpc.StatusCode.UNAVAILABLE, "the service ended before it answered"))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                self._knows_bundles = False
                await asyncio.gather(*(self._ask_alone(each) for each in asked))
            else:
                _fail(asked, error)
        except asyncio.CancelledError:
            _fail(asked, _fault(grpc.StatusCode.CANCELLED, "the call was given up"))
            if left:
                raise
        finally:
            taken()

    def _settle(self, waiting: asyncio.Future[Any], answer: pb.Answer) -> None:
        if waiting.done():  # its caller has gone
            return
        if not answer.status:
            waiting.set_result(self._read(answer.reply))
            return
        trailer = ((REASON_KEY, answer.reason), (DETAILS_KEY, answer.details)) if answer.reason else ()
        status = _STATUS.get(answer.status, grpc.StatusCode.UNKNOWN)
        waiting.set_exception(_fault(status, answer.message, trailer))

    async def _ask_alone(self, each: _Asked) -> None:
        try:
            reply = await self._alone(each.request, timeout=each.seconds, metadata=each.metadata)
        except grpc.aio.AioRpcError as error:
            _fail([each], error)
            return
        if not each.answer.done():
            each.answer.set_result(reply)


def _fail(asked: list[_Asked], error: grpc.aio.AioRpcError) -> None:
    for each in asked:
        if not each.answer.done():
            each.answer.set_exception(error)


def _fault(status: grpc.StatusCode, message: str, trailer: Any = ()) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata(*trailer), message)


class _OneOfMany:
    """What a call in a bundle sees of its surroundings: its own metadata and end, the bundle's caller and deadline."""

    def __init__(self, bundle: grpc.aio.ServicerContext[Any, Any], metadata: Mapping[str, str]) -> None:
        self._bundle, self._metadata = bundle, metadata
        self.refusal = pb.Answer(status=grpc.StatusCode.INTERNAL.value[0])

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return tuple(self._metadata.items())

    def time_remaining(self) -> float | None:
        return self._bundle.time_remaining()

    def auth_context(self) -> Any:
        return self._bundle.auth_context()

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> None:
        told = dict(trailing_metadata)
        self.refusal = pb.Answer(
            status=code.value[0], message=details, reason=told.get(REASON_KEY, ""), details=told.get(DETAILS_KEY, b"")
        )
        raise grpc.aio.AbortError


class BundleServicer(rpc.BundlesServicer):
    """Makes the calls of bundles. `guarded` gives the handler of a method with all that surrounds every call."""

    def __init__(self, guarded: Callable[[str], Any]) -> None:
        self._guarded = guarded

    async def Carry(self, request: pb.Bundle, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[pb.Answers]:
        handler = self._guarded(request.method) if request.method in CARRIED else None
        if handler is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{request.method} is not carried in bundles")
        ready: list[pb.Answer] = []
        some = asyncio.Event()

        async def make(place: int, call: pb.Call) -> None:
            answer = await _made(handler, call, context)
            answer.place = place
            ready.append(answer)
            some.set()

        making = [asyncio.create_task(make(place, call)) for place, call in enumerate(request.calls)]
        left = len(making)
        try:
            await asyncio.sleep(0)  # those that need not wait are answered by now
            while left:
                answers, ready[:] = ready[:], []
                left -= len(answers)
                some.clear()
                yield pb.Answers(answers=answers)  # the first time perhaps of none: that they were taken
                if left:
                    await some.wait()
        finally:
            for task in making:
                task.cancel()


async def _made(handler: Any, call: pb.Call, context: grpc.aio.ServicerContext[Any, Any]) -> pb.Answer:
    """The answer to one call; a fault of its own ends it alone."""
    alone = _OneOfMany(context, call.metadata)
    try:
        reply = await handler.unary_unary(handler.request_deserializer(call.request), alone)
        return pb.Answer(reply=handler.response_serializer(reply))
    except grpc.aio.AbortError:
        return alone.refusal
    except DecodeError:
        return pb.Answer(status=grpc.StatusCode.INVALID_ARGUMENT.value[0], message="not a request of this method")
