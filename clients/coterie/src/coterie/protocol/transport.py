"""One HTTP request with retries: back-off with jitter, Retry-After, request ids, and problem documents as errors.

The transport retries when that is safe: always when no connection was made; otherwise only an idempotent request that
got 503 (from a proxy: 429, 502, 504), no response, or a response that is not JSON. It resends a body that was corrupted
or cut off in transit a few times. It raises every other error at once. It does not follow redirects, which would send
the API key elsewhere. TCP keep-alive detects a dead connection within seconds, and the first attempts of a read-only
request use shorter time-outs than later ones.
"""

from __future__ import annotations

import json
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from coterie.errors import Refused, Unreachable, refusal

TRY_LATER = frozenset({429, 502, 503, 504})
IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE"})
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
FIRST_ANSWER_SECONDS = 8.0
"""How long the first try of a GET waits beyond what the server was asked to wait; each later one twice as long."""
SILENT_SECONDS = 15
"""A connection closes after this long without a sign of the other machine."""
MOST_RETRY_AFTER_SECONDS = 30.0
SPOILT = frozenset({"digest_mismatch", "body_cut_short"})
"""Error reasons meaning the body was corrupted in transit; safe to resend."""
SENT_AGAIN = 5
"""Times a spoilt body is sent again; one that is wrong where it comes from stays wrong."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait between attempts, and when to give up.

    Attributes:
        first_seconds: upper end of the first pause; each later one doubles, up to `most_seconds`.
        patience_seconds: give up when this long has passed since the first attempt; infinite for agents.
        jitter: a draw from [0, 1); pauses are spread over the upper half so that devices do not return in step.
    """

    first_seconds: float = 0.1
    most_seconds: float = 5.0
    patience_seconds: float = 30.0
    jitter: Callable[[], float] = field(default=random.random)

    def pauses(self) -> Iterator[float]:
        """Pauses in seconds, without end."""
        longest = self.first_seconds
        while True:
            yield longest * (0.5 + 0.5 * self.jitter())
            longest = min(self.most_seconds, longest * 2.0)


class Interrupted(Exception):
    """`Stop.set` ended a wait."""


class Stop:
    """A switch that ends every wait: `set` it and sleepers raise `Interrupted`."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Stop."""
        self._event.set()

    def clear(self) -> None:
        """Start again once all waits have ended."""
        self._event.clear()

    @property
    def is_set(self) -> bool:
        """Whether to stop."""
        return self._event.is_set()

    def sleep(self, seconds: float) -> None:
        """Sleep, or raise `Interrupted` as soon as the switch is set."""
        if self._event.wait(max(0.0, seconds)):
            raise Interrupted

    def wait(self, seconds: float) -> bool:
        """Sleep; True when the switch was set meanwhile."""
        return self._event.wait(max(0.0, seconds))


def timeout_for(wait_seconds: float = 0.0, method: str = "", attempt: int = 0) -> httpx.Timeout:
    """Limits of one request that may be answered after `wait_seconds`; `attempt` counts from 0."""
    answer = min(ANSWER_SECONDS, FIRST_ANSWER_SECONDS * 2**attempt) if method == "GET" else ANSWER_SECONDS
    return httpx.Timeout(answer + wait_seconds, connect=CONNECT_SECONDS)


def signs_of_life() -> list[tuple[int, int, int]]:
    """Socket options by which the kernel notices that the other end is gone; those this system knows."""
    third = SILENT_SECONDS // 3
    wanted = {
        "TCP_KEEPIDLE": third,
        "TCP_KEEPINTVL": third,
        "TCP_KEEPCNT": 2,
        "TCP_USER_TIMEOUT": SILENT_SECONDS * 1000,
    }
    known = [(socket.IPPROTO_TCP, getattr(socket, name), wanted[name]) for name in wanted if hasattr(socket, name)]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *known]


def headers_for(api_key: str) -> dict[str, str]:
    """Headers every request carries."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def problem_of(response: httpx.Response) -> Refused:
    """The error a refusal stands for; the body must have been read."""
    try:
        problem = json.loads(response.content)
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    problem.setdefault("request_id", response.headers.get("x-request-id", ""))
    return refusal(response.status_code, problem)


def retry_after(response: httpx.Response) -> float:
    """Seconds the server asks to wait; 0 when it does not say."""
    try:
        return min(MOST_RETRY_AFTER_SECONDS, max(0.0, float(response.headers.get("retry-after", "0"))))
    except ValueError:
        return 0.0


class Transport:
    """Sends requests of one caller; safe to use from several threads."""

    def __init__(
        self,
        url: str,
        api_key: str = "",
        *,
        backoff: Backoff | None = None,
        stop: Stop | None = None,
        verify: bool | str = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url, self.stop = url.rstrip("/"), stop or Stop()
        self._backoff, self._monotonic = backoff or Backoff(), monotonic
        self._context = httpx.create_ssl_context(verify=verify) if url.startswith("https") else False
        self._headers = headers_for(api_key)
        self._client = self._opened()

    def _opened(self) -> httpx.Client:
        wire = httpx.HTTPTransport(verify=self._context, trust_env=False, socket_options=signs_of_life())
        return httpx.Client(
            base_url=self.url, headers=self._headers, transport=wire, timeout=timeout_for(), trust_env=False
        )

    def close(self) -> None:
        """Gives connections back; a later request opens new ones."""
        self._client.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        idempotent: bool | None = None,
        wait_seconds: float = 0.0,
        consume: Callable[[httpx.Response], Any] | None = None,
        content: Callable[[], Any] | None = None,
        **options: Any,
    ) -> Any:
        """The answer's JSON (None when empty), or what `consume` makes of the streamed answer.

        Args:
            idempotent: whether it may be repeated after it perhaps arrived; by default, by method.
            wait_seconds: how long the server may hold its answer back (long polls).
            consume: reads a successful answer piece by piece.
            content: makes a fresh body for each attempt, so that files can be sent again.
            options: `params`, `json` and `headers`, as httpx takes them.
        """
        safe = method in IDEMPOTENT if idempotent is None else idempotent
        options["headers"] = {"X-Request-Id": secrets.token_hex(8), **(options.get("headers") or {})}
        if self._client.is_closed:
            self._client = self._opened()
        began, spoilt = self._monotonic(), 0
        for attempt, pause in enumerate(self._backoff.pauses()):
            if self.stop.is_set:
                raise Interrupted
            failure: Exception
            try:
                with _opened(content) as body:
                    request = self._client.build_request(
                        method, path, timeout=timeout_for(wait_seconds, method, attempt), content=body, **options
                    )
                    return self._answer(request, consume)
            except _TryLater as later:
                if not safe:
                    raise later.refusal from None
                pause, failure = max(pause, later.seconds), later.refusal
            except Refused as refused:
                spoilt += 1
                if not safe or refused.reason not in SPOILT or spoilt > SENT_AGAIN:
                    raise
                failure = refused
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
            except httpx.TransportError as error:
                if not safe:
                    raise Unreachable(f"{self.url} did not answer {method} {path} ({_text(error)})") from error
                failure = error
            if self._monotonic() - began + pause > self._backoff.patience_seconds:
                raise Unreachable(_given_up(self.url, failure)) from failure
            self.stop.sleep(pause)
        raise AssertionError("pauses never end")

    def _answer(self, request: httpx.Request, consume: Callable[[httpx.Response], Any] | None) -> Any:
        response = self._client.send(request, stream=True)
        try:
            if response.is_success and consume is not None:
                return consume(response)
            response.read()
        finally:
            response.close()
        if response.status_code in TRY_LATER:
            raise _TryLater(retry_after(response), problem_of(response))
        if not response.is_success:
            raise problem_of(response)
        return whole_json(response.content)


def whole_json(content: bytes) -> Any:
    """What an answer says, None when it is empty; JSON that was damaged on its way counts as no answer."""
    try:
        return json.loads(content) if content else None
    except (ValueError, RecursionError) as error:
        raise httpx.RemoteProtocolError("the answer is not whole: its JSON cannot be read") from error


class _TryLater(Exception):
    def __init__(self, seconds: float, refusal: Refused) -> None:
        self.seconds, self.refusal = seconds, refusal


@contextmanager
def _opened(content: Callable[[], Any] | None) -> Iterator[Any]:
    """A fresh body; a file is closed afterwards."""
    body: Any = None if content is None else content()
    try:
        yield body
    finally:
        close = getattr(body, "close", None)
        if close is not None:
            close()


def _given_up(url: str, failure: Exception) -> str:
    if isinstance(failure, Refused):
        return f"{url} cannot do this now: {failure}"
    return f"{url} cannot be reached ({_text(failure)}); check the address and that the platform runs"


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
