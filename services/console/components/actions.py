"""Event handlers that report errors, and views that refresh themselves."""

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
FAULT = "Something went wrong. Reload the page and try again; the console's log has the details."
_log = get_logger()


def handler(context: PageContext, act: Callable[..., Any]) -> Callable[..., Awaitable[None]]:
    """Wrap a user's action: it extends the session and shows errors as notifications."""

    client = ui.context.client

    async def run(*arguments: Any) -> None:
        context.touch()
        # The action may delete the element that was clicked; notifications need the page, which stays.
        with client:
            await _attempt(act, arguments)

    async def without() -> None:
        await run()

    async def with_event(event: Any) -> None:
        await run(event)

    # NiceGUI passes the event only to handlers that have a parameter for it.
    wanted = [
        parameter for parameter in inspect.signature(act).parameters.values() if parameter.default is parameter.empty
    ]
    handlers: dict[int, Callable[..., Awaitable[None]]] = {0: without, 1: with_event}
    return handlers.get(len(wanted), run)


async def _attempt(act: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        result = act(*arguments)
        if inspect.isawaitable(result):
            await result
    except SignedOut as error:
        leave(str(error))
    except CoterieError as error:
        ui.notify(sentence(error), type="negative", multi_line=True, timeout=8000, close_button="Close")
    except Exception:
        _log.exception("user action failed")
        ui.notify(FAULT, type="negative", timeout=8000)


def sentence(error: Exception) -> str:
    """Return the error as a sentence, with the request's id if the platform sent one."""
    request = f" (request {error.request_id})" if isinstance(error, Refused) and error.request_id else ""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}{request}"


class View(Generic[T]):
    """A part of a page that shows the result of `read` and redraws only when it has changed.

    While the platform does not answer, the last state stays visible under a warning.
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
        """Read, and draw if the result has changed; this does not extend the session."""
        async with self._busy:
            try:
                result = await self._read()
            except SignedOut as error:
                if ui.context.client.has_socket_connection:
                    leave(str(error))
                elif self._shown is None:
                    raise  # the page is still being built: its builder redirects the browser
                return
            except CoterieError as error:
                self._show_failure(sentence(error))
                return
            self._show_failure("")
            if result != self._shown or self._shown is None:
                self._shown = result
                self._place.clear()
                with self._place:
                    drawn = self._draw(result)
                    if inspect.isawaitable(drawn):
                        await drawn

    def _show_failure(self, failure: str) -> None:
        if failure != self._failed:
            self._failed = failure
            self._remark.clear()
            if failure:
                with self._remark:
                    since = "The page shows the last known state." if self._shown is not None else ""
                    note("cloud_off", f"{failure} {since}", "bad")


async def view(
    context: PageContext, read: Callable[[], Awaitable[T]], draw: Callable[[T], Any], *, every_seconds: float = 0.0
) -> View[T]:
    """Create a view and draw it."""
    result = View(context, read, draw, every_seconds=every_seconds)
    await result.refresh()
    return result
