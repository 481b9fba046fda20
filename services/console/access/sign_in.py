"""Sign-in, sign-out and browser links: plain pages that work without NiceGUI."""

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
from services.console.access.sessions import Person, SignInLimiter
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
<p>Admins: read <code>admin.key</code> in the platform's data folder; with Compose, run <code>docker compose exec trust
cat /data/admin.key</code>.<br>Publishers: ask an admin to run <code>coterie keys create publisher NAME</code>.<br>
Owners: run <code>coterie device link --home FOLDER</code> on one of your devices and open the address it shows in this
browser. You can also sign in with the device's own key (in <code>device.json</code> in its folder): it lets you read,
but not decide.</p></details>"""
_LINK = """<p>Link this browser to see what your device shares and earns, and to decide which tasks it joins. This
browser signs your decisions; your device accepts no others.</p><p>Continue only if you made this link yourself, just
now.</p>
<p id="remark" class="c-note warn" role="alert" hidden></p>
<button id="link" type="button" hidden>Link this browser</button>
<noscript><p class="c-note warn">Linking needs JavaScript.</p></noscript>
<script src="/static/owner.js"></script><script>coterieLink()</script>"""


def sign_in_routes(app: AppContext) -> APIRouter:
    """Build the routes of sign-in, sign-out and browser links."""
    routes = APIRouter()
    limiter = SignInLimiter(app.settings.console_sign_ins_per_minute)

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
            if not limiter.allow(address):
                raise TooManyTries("Too many sign-in attempts from this address. Wait a minute and try again.")
            if not 0 < len(key) <= MOST_KEY_CHARACTERS or not key.isascii() or not key.isprintable():
                raise Unauthenticated("This is not an API key of this platform. Check that you pasted all of it.")
            person = await identify(app.gateway, key)
        except Unauthenticated:
            return sign_in_page(
                safe_next(next), "The platform does not know this key. Check that you pasted all of it.", 401
            )
        except CoterieError as error:
            return sign_in_page(safe_next(next), str(error), 429 if isinstance(error, TooManyTries) else 503)
        return begin_session(app, person, key, RedirectResponse(first_page(person.role, next), 303))

    @routes.get("/link")
    async def offer() -> Response:
        return plain_page("Link this browser to your device", _LINK)

    @routes.post("/link")
    async def link(request: Request, claim: Claim) -> Response:
        """Claim a link for this browser and sign it in."""

        async def claim_link() -> Response:
            path, taken = f"/v1/links/{claim.link}", claim.model_dump(exclude={"link", "at_milliseconds", "signature"})
            await app.gateway.ask("POST", f"{path}/claim", json=taken)
            return await signed_in(claim)

        return await _sign_in_limited(request, claim_link)

    @routes.post("/signin/browser")
    async def sign_in_by_key(request: Request, signed: Signed) -> Response:
        """Sign in a linked browser by the signature of its key."""
        return await _sign_in_limited(request, lambda: signed_in(signed))

    async def signed_in(signed: Signed) -> Response:
        body = signed.model_dump(include={"at_milliseconds", "signature"})
        made = await app.gateway.ask("POST", f"/v1/links/{signed.link}/sessions", json=body)
        person = await identify(app.gateway, made["api_key"])
        response = JSONResponse({"device": person.subject, "name": person.name})
        return begin_session(app, person, made["api_key"], response)

    async def _sign_in_limited(request: Request, action: Callable[[], Awaitable[Response]]) -> Response:
        try:
            if not limiter.allow(request.client.host if request.client else ""):
                raise TooManyTries("Too many sign-in attempts from this address. Wait a minute and try again.")
            return await action()
        except Refused as error:
            problem = {"detail": str(error)[:1].upper() + str(error)[1:] + ".", "reason": error.reason}
            return JSONResponse(problem, error.status or 502)
        except CoterieError as error:
            return JSONResponse({"detail": str(error)}, 429 if isinstance(error, TooManyTries) else 503)

    @routes.get("/session")
    async def ask(request: Request) -> Response:
        """Return whether the browser is signed in; this does not extend the session."""
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
    """Sign-in of a linked browser; the gateway verifies the signature."""

    model_config = ConfigDict(extra="forbid")

    link: Annotated[str, Field(pattern=r"^lnk_[0-9a-z]{1,64}$")]
    at_milliseconds: int
    signature: Annotated[str, Field(max_length=200)]


class Claim(Signed):
    """Claim of a link by a browser."""

    token: Annotated[str, Field(max_length=100)]
    browser_key: Annotated[str, Field(max_length=100)]
    proof: Annotated[str, Field(max_length=100)]
    name: Annotated[str, Field(max_length=100)]


def begin_session(app: AppContext, person: Person, key: str, answer: Response) -> Response:
    """Start a session and add its cookie to the response."""
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
    """Build the sign-in page, with a remark above the form."""
    note = f'<p class="c-note warn" role="alert">{escape(remark)}</p>' if remark else ""
    return plain_page("Sign in", _FORM.format(remark=note, next=quote(next)), status)


def first_page(role: str, wanted: str) -> str:
    """Return the page to open after sign-in: the requested one, or the role's start page."""
    local = safe_next(wanted)
    return home_of(role) if local == "/" else local


def safe_next(address: str) -> str:
    """Return the address if it is a page of this console, otherwise the start page."""
    parts = urlsplit(address)
    local = address.startswith("/") and not address.startswith(("//", "/\\")) and not parts.scheme and not parts.netloc
    return address if local and address.isprintable() and "\\" not in address else "/"
