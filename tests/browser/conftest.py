"""A real Chromium, console and platform; without Chromium, pytest skips these tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.browser.scene import Console, Scene
from tests.e2e.real_platform import real_platform

ARGUMENTS = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-gpu",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
DESKTOP, PHONE = {"width": 1360, "height": 860}, {"width": 390, "height": 844}
HINT = "Chromium not found: run `apt-get install chromium` or set COTERIE_CHROMIUM to its path"


def chromium_path() -> str:
    """Return the path of the browser; empty if there is none."""
    return os.environ.get("COTERIE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or ""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser of one test file; its event loop keeps other tests from starting one."""
    path = chromium_path()
    if not path:
        pytest.skip(HINT)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def scene(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The platform with its history."""
    with real_platform(tmp_path_factory.mktemp("scene")) as platform:
        made = Scene(platform)
        try:
            made.play()
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def console(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """The console of the scene."""
    made = Console(scene.platform.processes.url, tmp_path_factory.mktemp("console"))
    yield made
    made.stop()
    assert "Traceback" not in made.log(), made.log()


class Visitor:
    """A browser context that collects console errors and requests to other hosts."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context, self.url = context, url
        self.complaints: list[str] = []
        self.page: Page = context.new_page()
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("request", lambda request: self._check(request.url))
        self.page.on("websocket", lambda socket: self._check(socket.url))

    def _hear(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(f"console: {message.text}")

    def _check(self, address: str) -> None:
        here = (self.url, self.url.replace("http://", "ws://"), "data:", "blob:")
        if not address.startswith(here):
            self.complaints.append(f"another host: {address}")

    def sign_in(self, key: str) -> Visitor:
        """Sign in with an API key."""
        self.page.goto(f"{self.url}/signin")
        self.page.fill("input[name=api_key]", key)
        self.page.click("button[type=submit]")
        self.page.wait_for_selector(".c-main h1, .c-main .c-note")
        return self

    def open(self, path: str) -> Page:
        """Open a page of the console and wait until it is drawn."""
        self.page.goto(self.url + path)
        self.page.wait_for_selector(".c-main h1, .c-main .c-note")
        return self.page

    def content(self) -> str:
        """Return the text of the page."""
        return "\n".join(self.page.locator(".c-main, .c-plain-page main").all_inner_texts())


@pytest.fixture
def visitors(chromium: Browser, console: Console) -> Iterator[Any]:
    """Create visitors; at the end, none of their pages may have reported an error."""
    made: list[Visitor] = []

    def visitor(key: str = "", **options: Any) -> Visitor:
        context = chromium.new_context(**({"viewport": DESKTOP, "timezone_id": "Europe/Madrid"} | options))
        context.set_default_timeout(20_000)
        made.append(Visitor(context, console.url))
        return made[-1].sign_in(key) if key else made[-1]

    yield visitor
    complaints = [complaint for one in made for complaint in one.complaints]
    for one in made:
        one.context.close()
    assert complaints == []


@pytest.fixture
def admin(visitors: Any, scene: Scene) -> Visitor:
    """An admin's browser."""
    result: Visitor = visitors(scene.platform.processes.admin_key())
    return result
