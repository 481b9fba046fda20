"""The frame of every page: sign-in check, header with menu, and error messages."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from nicegui import ui
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from coterie.errors import CoterieError, NotAllowed, NotFound, Refused
from services.console.components.blocks import button, note, text_element
from services.console.components.contexts import ADMIN, DEVICE, PUBLISHER, AppContext, PageContext
from services.console.errors import NotForYou, SignedOut
from services.kit.observability.logs import get_logger

Body = Callable[..., Awaitable[None]]
STAFF = frozenset({ADMIN, PUBLISHER})
ADMINS = frozenset({ADMIN})
ALL_ROLES = frozenset({ADMIN, PUBLISHER, DEVICE})
MENU = (
    ("/", "Overview", "dashboard", STAFF),
    ("/tasks", "Tasks", "model_training", STAFF),
    ("/trust", "Trust", "hub", STAFF),
    ("/privacy", "Privacy", "shield", ADMINS),
    ("/payments", "Payments", "payments", STAFF),
    ("/audit", "Audit", "fact_check", ADMINS),
    ("/health", "Health", "monitor_heart", ADMINS),
)
HEAD = """
<link rel="stylesheet" href="/static/console.css">
<link rel="manifest" href="/manifest.webmanifest">
<script>document.documentElement.dataset.drawn = "";</script>
<script src="/static/head.js"></script>
"""
_log = get_logger()


class Pages:
    """Registry of pages; a page is drawn for signed-in users only."""

    def __init__(self, app: AppContext) -> None:
        self._app = app

    def add(self, path: str, title: str, roles: frozenset[str], body: Body) -> None:
        """Register a page at `path`; `body` takes the context and the path's parameters."""
        extra = [parameter for name, parameter in inspect.signature(body).parameters.items() if name != "context"]

        async def draw(request: Request, **given: Any) -> Response | None:
            session = self._app.session_of(request.cookies)
            if session is None:
                return RedirectResponse(sign_in_address(request), 303)
            self._app.sessions.touch(session)
            context = PageContext.of(self._app, session, request)
            _frame(context, path)
            try:
                await _guarded(context, title, roles, body, given)
            except SignedOut as error:
                if not ui.context.client.has_socket_connection:
                    return RedirectResponse(sign_in_address(request, str(error)), 303)
                leave(str(error))
            return None

        asked = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Request)
        draw.__signature__ = inspect.Signature([asked, *extra])  # type: ignore[attr-defined]
        ui.page(path, title=f"{title} · Coterie", response_timeout=30.0)(draw)


def sign_in_address(request: Request, why: str = "") -> str:
    """Return the address of the sign-in page that leads back to the requested page."""
    requested = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return f"/signin?next={quote(requested)}" + (f"&why={quote(why)}" if why else "")


async def _guarded(context: PageContext, title: str, roles: frozenset[str], body: Body, given: dict[str, Any]) -> None:
    with ui.element("div").classes("c-main c-beside" if context.person.role in STAFF else "c-main c-narrow") as main:
        ui.skip_link("Skip to content", target=main)
        try:
            if context.person.role not in roles:
                raise NotForYou(f"“{title}” is not available to {context.person.role}s. Sign in with another key.")
            await body(context, **given)
        except SignedOut:
            raise
        except CoterieError as error:
            trouble(error)


def trouble(error: Exception) -> None:
    """Draw an error in place of the requested page."""
    if isinstance(error, NotForYou | NotAllowed):
        note("lock", f"You may not see this: {error}", "warn")
    elif isinstance(error, NotFound):
        note("search_off", f"Not found: {error}", "warn")
    else:
        request = f" (request {error.request_id})" if isinstance(error, Refused) and error.request_id else ""
        note("error", f"{error}{request}", "bad")
    with ui.row():
        button("Try again", "refresh", lambda: ui.navigate.reload())
        button("Go to the start page", "home", lambda: ui.navigate.to("/"))


def leave(why: str) -> None:
    """Send the browser to the sign-in page."""
    # Only once: several parts of a page may notice at the same time that the session has ended.
    away = f"'/signin?why={quote(why)}&next=' + encodeURIComponent(location.pathname)"
    ui.run_javascript(f"if (!window.coterieLeft) {{ window.coterieLeft = true; location.href = {away}; }}")


def home_of(role: str) -> str:
    """Return the start page of a role."""
    return "/me" if role == DEVICE else "/"


def _frame(context: PageContext, path: str) -> None:
    ui.add_head_html(HEAD)
    ui.dark_mode(context.dark)
    ui.colors(primary="#1f8b87" if context.dark else "#0f6b6b", negative="#ff9a90" if context.dark else "#b3261e")
    own = [item for item in MENU if context.person.role in item[3]]
    with ui.header().classes("c-header"):
        if own:
            toggle = ui.button(icon="menu", color=None).props('flat round dense aria-label="Menu"').classes("c-menu")
            toggle.on("click", js_handler="() => document.documentElement.classList.toggle('c-open')")
        with ui.element("a").classes("c-brand").props(f"href={home_of(context.person.role)}"):
            ui.element("img").props('src=/static/mark.svg alt=""')
            ui.label("Coterie")
        with ui.element("div").classes("c-who"):
            text_element("b", context.person.name or context.person.subject)
            ui.label(context.person.role)
        ui.button(icon="light_mode" if context.dark else "dark_mode").props(
            f'flat round dense color=inherit aria-label="{"Light" if context.dark else "Dark"} colours"'
        ).on("click", js_handler="() => window.coterieToggleTheme()")
        with ui.element("form").props("method=post action=/signout").style("margin: 0"):
            ui.button(icon="logout").props('flat round dense color=inherit type=submit aria-label="Sign out"')
    if own:
        _menu(own, path)


def _menu(entries: list[tuple[str, str, str, frozenset[str]]], path: str) -> None:
    client = ui.context.client  # the menu stands outside the content, which is the landmark "main"
    with client.layout:
        beside = ui.element("aside").classes("c-side")
    # The menu precedes the content in tab order, after the header and the skip link.
    beside.move(target_index=client.layout.default_slot.children.index(client.page_container))
    with beside, ui.element("nav").classes("c-nav").props('aria-label="Pages"'):
        for address, label, icon, _ in entries:
            here = path == address or (address != "/" and path.startswith(address))
            with ui.element("a").props(f"href={address}" + (" aria-current=page" if here else "")):
                ui.icon(icon).props("aria-hidden=true")
                ui.label(label)
