"""Pages without NiceGUI: sign-in pages and error pages."""

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
    """Build a page; `body` is markup that the caller has escaped."""
    return HTMLResponse(_PAGE.format(title=escape(title), body=body), status, {"Cache-Control": "no-store"})


def not_found(path: str) -> HTMLResponse:
    message = f"<p>No page exists at <code>{escape(path[:200])}</code>.</p>"
    return plain_page("Not found", message + '<p><a href="/">Go to the start page</a></p>', 404)


def fault(fault_id: str) -> HTMLResponse:
    """Build the page for an unexpected error; only the log has the details."""
    return plain_page(
        "Something went wrong",
        f"<p>The console could not draw this page. Look for this id in its log: <code>{escape(fault_id)}</code>.</p>"
        '<p><a href="">Try again</a> or go <a href="/">to the start page</a>.</p>',
        500,
    )
