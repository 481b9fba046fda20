"""Signing in and out: plain pages and forms, so that they work before anything else does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from html import escape
from typing import Annotated
from urllib.parse import quote, urlsplit

from fastapi import APIRouter, Form
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from coterie.errors import CoterieError, Refused, Unauthenticated
from services.console.access.sessions import Person, Tries
from services.console.components.contexts import AppContext
from services.console.components.frame import home_of
from services.console.components.plain_pages import plain_page
from services.console.errors import TooManyTries
from services.console.wire.platform import identify
from services.kit.observability.logs import get_logger

MOST_KEY_CHARACTERS = 512
_log = get_logger()
_FORM = """{remark}
<form method="post" action="/signin?next={next}" style="display: contents">
<label>API key<input type="password" name="api_key" required autofocus autocomplete="current-password"
 spellcheck="false" maxlength="512"></label><button type="submit">Sign in</button></form>
<div id="browsers" class="c-stack" hidden><p id="browser-remark" class="c-note warn" role="alert" hidden></p>
</div><script src="/static/owner.js"></script><script>coterieSignIn()</script>
<details><summary>Where do I find my key?</summary>
<p>Admins: the first key is in the platform's data folder, <code>admin.key</code>; <code>docker compose exec trust cat
/data/admin.key</code> with Compose.<br>Publishers: an admin makes one with <code>coterie keys create publisher
NAME</code>.<br>Owners: run <code>coterie device link --home FOLDER</code> on one of your devices, and open the
address it shows in this browser. A device's own key (in its folder, <code>device.json</code>) lets you look and not
decide.</p></details>"""
_LINK = """<p>With it you see here what your device gives away and earns, and you decide here what it joins: this
browser signs, and your device believes nobody else.</p><p>Do so only if you made this link yourself, just now.</p>
<p id="remark" class="c-note warn" role="alert" hidden></p>
<button id="link" type="button" hidden>Link this browser</button>
<noscript><p class="c-note warn">Linking needs JavaScript.</p></noscript>
<script src="/static/owner.js"></script><script>coterieLink()</script>"""


def sign_in_routes(app: AppContext) -> APIRouter:
    """The routes of the sign-in page."""
    routes = APIRouter()
    tries = Tries(app.settings.console_sign_ins_per_minute)

    @routes.get("/signin")
    async def show(request: Request, next: str = "/", why: str = "") -> Response:
        session = app.session_of(request.cookies)
        if session is not None and not why:
            return RedirectResponse(first_page(session.person.role, next), 303)
        return sign_in_page(safe_next(next), why[:300])

    @routes.post("/signin")
    async def sign_in(request: Request, api_key: str = Form(""), next: str = "/") -> Response:
        address = request.client.host if request.client else ""
        key = api_key.strip()
        try:
            if not tries.allow(address):
                raise TooManyTries("Too many tries from here; wait a minute and try again.")
            if not 0 < len(key) <= MOST_KEY_CHARACTERS or not key.isascii() or not key.isprintable():
                raise Unauthenticated("This is no API key of this platform; check that all of it was pasted.")
            person = await identify(app.gateway, key)
        except Unauthenticated:
            return sign_in_page(
                safe_next(next), "The platform does not know this key; check that all of it was pasted.", 401
            )
        except CoterieError as error:
            return sign_in_page(safe_next(next), str(error), 429 if isinstance(error, TooManyTries) else 503)
        return begin_session(app, person, key, RedirectResponse(first_page(person.role, next), 303))

    @routes.get("/link")
    async def offer() -> Response:
        return plain_page("A link to your device", _LINK)

    @routes.post("/link")
    async def link(request: Request, claim: Claim) -> Response:
        """Takes a link for this browser, and signs it in."""

        async def enter() -> Response:
            path, taken = f"/v1/links/{claim.link}", claim.model_dump(exclude={"link", "at_milliseconds", "signature"})
            await app.gateway.ask("POST", f"{path}/claim", json=taken)
            return await signed_in(claim)

        return await _let_in(request, enter)

    @routes.post("/signin/browser")
    async def sign_in_by_key(request: Request, signed: Signed) -> Response:
        """Signs a linked browser in, by the signature of its key."""
        return await _let_in(request, lambda: signed_in(signed))

    async def signed_in(signed: Signed) -> Response:
        body = signed.model_dump(include={"at_milliseconds", "signature"})
        made = await app.gateway.ask("POST", f"/v1/links/{signed.link}/sessions", json=body)
        person = await identify(app.gateway, made["api_key"])
        told = JSONResponse({"device": person.subject, "name": person.name})
        return begin_session(app, person, made["api_key"], told)

    async def _let_in(request: Request, enter: Callable[[], Awaitable[Response]]) -> Response:
        try:
            if not tries.allow(request.client.host if request.client else ""):
                raise TooManyTries("Too many tries from here; wait a minute and try again.")
            return await enter()
        except Refused as error:
            told = {"detail": str(error)[:1].upper() + str(error)[1:] + ".", "reason": error.reason}
            return JSONResponse(told, error.status or 502)
        except CoterieError as error:
            return JSONResponse({"detail": str(error)}, 429 if isinstance(error, TooManyTries) else 503)

    @routes.get("/session")
    async def ask(request: Request) -> Response:
        """Whether the browser is still signed in; asking is no use of the session."""
        signed_in = app.session_of(request.cookies) is not None
        return JSONResponse({"signed_in": signed_in}, headers={"Cache-Control": "no-store"})

    @routes.post("/signout")
    async def sign_out(request: Request) -> Response:
        session = app.session_of(request.cookies)
        if session is not None:
            app.sessions.end(session)
        answer = RedirectResponse(f"/signin?why={quote('You are signed out.')}", 303)
        answer.delete_cookie(app.cookie, path="/", secure=app.settings.https, httponly=True, samesite="lax")
        return answer

    return routes


class Signed(BaseModel):
    """A linked browser that wants in; the gateway looks at what is in it."""

    model_config = ConfigDict(extra="forbid")

    link: Annotated[str, Field(pattern=r"^lnk_[0-9a-z]{1,64}$")]
    at_milliseconds: int
    signature: Annotated[str, Field(max_length=200)]


class Claim(Signed):
    """A browser that takes a link."""

    token: Annotated[str, Field(max_length=100)]
    browser_key: Annotated[str, Field(max_length=100)]
    proof: Annotated[str, Field(max_length=100)]
    name: Annotated[str, Field(max_length=100)]


def begin_session(app: AppContext, person: Person, key: str, answer: Response) -> Response:
    """The answer with the cookie of a new session."""
    _log.info("signed in", role=person.role, subject=person.subject, link=person.link_id)
    answer.set_cookie(
        app.cookie,
        app.sessions.begin(person, key),
        max_age=int(app.settings.console_session_seconds),
        httponly=True,
        secure=app.settings.https,
        samesite="lax",
        path="/",
    )
    return answer


def sign_in_page(next: str, remark: str = "", status: int = 200) -> HTMLResponse:
    """The form, with a remark above it."""
    said = f'<p class="c-note warn" role="alert">{escape(remark)}</p>' if remark else ""
    return plain_page("Sign in", _FORM.format(remark=said, next=quote(next)), status)


def first_page(role: str, wanted: str) -> str:
    """Where somebody goes who has just signed in: the page wanted, or the role's own start page."""
    local = safe_next(wanted)
    return home_of(role) if local == "/" else local


def safe_next(address: str) -> str:
    """A page of this console to go to after signing in; the start page for anything else."""
    parts = urlsplit(address)
    local = address.startswith("/") and not address.startswith(("//", "/\\")) and not parts.scheme and not parts.netloc
    return address if local and address.isprintable() and "\\" not in address else "/"
