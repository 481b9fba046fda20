"""Signing in and out: plain pages and forms, so that they work before anything else does."""

from __future__ import annotations

from html import escape
from urllib.parse import quote, urlsplit

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from coterie.errors import CoterieError, Unauthenticated
from services.console.access.sessions import Tries
from services.console.errors import TooManyTries
from services.console.parts.frame import home_of
from services.console.parts.plain import plain_page
from services.console.parts.visit import House
from services.console.wire.platform import identify
from services.kit.logs import get_logger

MOST_KEY_CHARACTERS = 512
_log = get_logger()
_FORM = """{remark}
<form method="post" action="/signin?next={next}" style="display: contents">
<label>API key<input type="password" name="api_key" required autofocus autocomplete="current-password"
 spellcheck="false" maxlength="512"></label><button type="submit">Sign in</button></form>
<details><summary>Where do I find my key?</summary>
<p>Admins: the first key is in the platform's data folder, <code>admin.key</code>; <code>docker compose exec trust cat
/data/admin.key</code> with Compose.<br>Publishers: an admin makes one with <code>coterie keys create publisher
NAME</code>.<br>Owners: a device's key is in its home folder, <code>device.json</code>.</p></details>"""


def door(house: House) -> APIRouter:
    """The routes of the sign-in page."""
    routes = APIRouter()
    tries = Tries(house.settings.console_sign_ins_per_minute)

    @routes.get("/signin")
    async def show(request: Request, next: str = "/", why: str = "") -> Response:
        session = house.session_of(request.cookies)
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
            person = await identify(house.wire, key)
        except Unauthenticated:
            return sign_in_page(
                safe_next(next), "The platform does not know this key; check that all of it was pasted.", 401
            )
        except CoterieError as error:
            return sign_in_page(safe_next(next), str(error), 429 if isinstance(error, TooManyTries) else 503)
        _log.info("signed in", role=person.role, subject=person.subject)
        answer = RedirectResponse(first_page(person.role, next), 303)
        answer.set_cookie(
            house.cookie,
            house.sessions.begin(person, key),
            max_age=int(house.settings.console_session_seconds),
            httponly=True,
            secure=house.settings.https,
            samesite="lax",
            path="/",
        )
        return answer

    @routes.get("/session")
    async def ask(request: Request) -> Response:
        """Whether the browser is still signed in; asking is no use of the session."""
        signed_in = house.session_of(request.cookies) is not None
        return JSONResponse({"signed_in": signed_in}, headers={"Cache-Control": "no-store"})

    @routes.post("/signout")
    async def sign_out(request: Request) -> Response:
        session = house.session_of(request.cookies)
        if session is not None:
            house.sessions.end(session)
        answer = RedirectResponse(f"/signin?why={quote('You are signed out.')}", 303)
        answer.delete_cookie(house.cookie, path="/", secure=house.settings.https, httponly=True, samesite="lax")
        return answer

    return routes


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
