"""Doing things from a page: clicks that may fail, and views that keep themselves fresh."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from nicegui import ui

from coterie.errors import CoterieError, Refused
from services.console.components.blocks import note
from services.console.components.contexts import PageContext
from services.console.components.frame import leave
from services.console.errors import SignedOut
from services.kit.observability.logs import get_logger

T = TypeVar("T")
FAULT = "Something went wrong here; the console's log has the details. Reload the page and try again."
_log = get_logger()


def handler(context: PageContext, act: Callable[..., Any]) -> Callable[..., Awaitable[None]]:
    """A handler for a person's click: counts as use of the session, and says what went wrong."""

    client = ui.context.client

    async def run(*given: Any) -> None:
        context.touch()
        # What the click redraws may be gone when it is done; the page itself is still there to speak on.
        with client:
            await _attempt(act, given)

    async def without() -> None:
        await run()

    async def with_event(event: Any) -> None:
        await run(event)

    # NiceGUI looks at a handler's parameters to decide whether to pass the event on.
    wanted = [
        parameter for parameter in inspect.signature(act).parameters.values() if parameter.default is parameter.empty
    ]
    handlers: dict[int, Callable[..., Awaitable[None]]] = {0: without, 1: with_event}
    return handlers.get(len(wanted), run)


async def _attempt(act: Callable[..., Any], given: tuple[Any, ...]) -> None:
    try:
        result = act(*given)
        if inspect.isawaitable(result):
            await result
    except SignedOut as error:
        leave(str(error))
    except CoterieError as error:
        ui.notify(sentence(error), type="negative", multi_line=True, timeout=8000, close_button="Close")
    except Exception:
        _log.exception("a click failed")
        ui.notify(FAULT, type="negative", timeout=8000)


def sentence(error: Exception) -> str:
    """What went wrong, as a sentence; with the request's name when the platform knows it."""
    name = f" (request {error.request_id})" if isinstance(error, Refused) and error.request_id else ""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}{name}"


class View(Generic[T]):
    """A part of a page that shows what `read` brings, drawn anew only when that has changed.

    While the platform is away the last state stays, under a remark since when.
    """

    def __init__(
        self,
        context: PageContext,
        read: Callable[[], Awaitable[T]],
        draw: Callable[[T], Any],
        *,
        every_seconds: float = 0.0,
    ) -> None:
        self._context, self._read, self._draw = context, read, draw
        self._shown: T | None = None
        self._failed = ""
        self._busy = asyncio.Lock()
        with ui.element("div").classes("c-stack") as self.box:
            self._remark = ui.element("div")
            self._place = ui.element("div").classes("c-stack").style("gap: var(--gap)")
        if every_seconds:
            ui.timer(every_seconds, self.refresh, immediate=False)

    async def refresh(self) -> None:
        """Reads, and draws when something is different. Nobody's action: the session's idle time goes on."""
        async with self._busy:
            try:
                match = await self._read()
            except SignedOut as error:
                if ui.context.client.has_socket_connection:
                    leave(str(error))
                elif self._shown is None:
                    raise  # the page is being made: its maker sends the browser away
                return
            except CoterieError as error:
                self._remember(sentence(error))
                return
            self._remember("")
            if match != self._shown or self._shown is None:
                self._shown = match
                self._place.clear()
                with self._place:
                    result = self._draw(match)
                    if inspect.isawaitable(result):
                        await result

    def _remember(self, failure: str) -> None:
        if failure != self._failed:
            self._failed = failure
            self._remark.clear()
            if failure:
                with self._remark:
                    since = "What is below is from before." if self._shown is not None else ""
                    note("cloud_off", f"{failure} {since}", "bad")


async def view(
    context: PageContext, read: Callable[[], Awaitable[T]], draw: Callable[[T], Any], *, every_seconds: float = 0.0
) -> View[T]:
    """A view, drawn for the first time."""
    made = View(context, read, draw, every_seconds=every_seconds)
    await made.refresh()
    return made
