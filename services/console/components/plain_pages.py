"""Pages without NiceGUI: they work before anybody is signed in, and when something is wrong."""

from __future__ import annotations

from html import escape

from starlette.responses import HTMLResponse

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title} · Coterie</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="/static/mark.svg">
<link rel="stylesheet" href="/static/console.css"><script src="/static/head.js"></script></head>
<body class="c-plain-page"><main><div class="c-brand"><img src="/static/mark.svg" alt=""> Coterie</div>
<h1>{title}</h1>{body}</main></body></html>"""


def plain_page(title: str, body: str, status: int = 200) -> HTMLResponse:
    """A page; `body` is markup, made safe by the caller."""
    return HTMLResponse(_PAGE.format(title=escape(title), body=body), status, {"Cache-Control": "no-store"})


def not_found(path: str) -> HTMLResponse:
    """There is no such page."""
    said = f"<p>Nothing is at <code>{escape(path[:200])}</code>.</p>"
    return plain_page("No such page", said + '<p><a href="/">To the start page</a></p>', 404)


def fault(name: str) -> HTMLResponse:
    """What nobody foresaw: fixed text, the log knows more."""
    return plain_page(
        "Something went wrong",
        f"<p>The console could not draw this page. Its log has the details under <code>{escape(name)}</code>.</p>"
        '<p><a href="">Try again</a> or go <a href="/">to the start page</a>.</p>',
        500,
    )
