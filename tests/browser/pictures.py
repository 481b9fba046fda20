"""Screenshots of all console pages, light and dark, on desktop and phone, with the devices of a demo.

python -m tests.browser.pictures FOLDER          screenshots of every page in four themes
python -m tests.browser.pictures docs/pictures   those that the documentation shows, as named there
"""

from __future__ import annotations

import io
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from coterie.learning.training import single_threaded
from coterie.samples import digits
from coterie_cli.demos import clusters
from coterie_cli.demos.demo_platform import DemoPlatform, running_platform
from coterie_cli.demos.market import publisher_with
from tests.browser.conftest import ARGUMENTS, DESKTOP, PHONE, Visitor, chromium_path
from tests.browser.scene import Console

THEMES = {
    "light": {"viewport": DESKTOP, "color_scheme": "light"},
    "dark": {"viewport": DESKTOP, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light"},
    "phone-dark": {"viewport": PHONE, "color_scheme": "dark"},
}
SETTLE_SECONDS = 2.5
"""Time until charts and graphs stop moving."""
COLOURS = 256


def play(ground: DemoPlatform) -> dict[str, str]:
    """Create a finished, a failed and a waiting task of the demo's devices; return pages by name."""
    split = digits(len(clusters.CAST), concentration=1.0)
    agents = clusters.devices(ground, split)
    clusters.meet(ground, agents)
    publisher, _ = publisher_with(ground, "library", clusters.ESCROW)
    task = clusters.publish(publisher, 0, clusters.ROUNDS)
    ground.run_agents(agents, task.id)
    ground.start_task(task.id)
    ground.admin.wait_for_end(task.id)
    ground.wait_for_agents()
    model = task.model_digests
    failing = publisher.create_task(
        name="hopeless", preset="fedavg", model_digests=model, min_devices=1, round_seconds=1.0, max_attempts=-1
    )
    agents[0].platform.enrol(failing.id, agents[0].identity.id, samples=5)
    publisher.start_task(failing.id)
    publisher.wait_for_end(failing.id)
    publisher.create_task(name="kitchens", preset="fedavg", model_digests=model, min_devices=20, rounds=30)
    publisher.close()
    first, second = (agent.identity.id for agent in agents[:2])
    return {
        "overview": "/",
        "tasks": "/tasks",
        "new-task": "/tasks/new?preset=clusters",
        "task": f"/tasks/{task.id}",
        "plan": f"/tasks/{task.id}?tab=plan",
        "devices": f"/tasks/{task.id}?tab=devices",
        "events": f"/tasks/{task.id}?tab=events",
        "versions": f"/tasks/{task.id}?tab=versions",
        "settings": f"/tasks/{task.id}?tab=settings",
        "failed": f"/tasks/{failing.id}",
        "trust": "/trust",
        "device": f"/trust?device={first}",
        "tie": f"/trust?device={first}&peer={second}",
        "privacy": f"/privacy?task={task.id}",
        "privacy-device": f"/privacy?device={first}",
        "payments": "/payments",
        "prices": "/payments?show=prices",
        "accounts": "/payments?show=accounts",
        "statement": f"/payments?account=device:{first}",
        "book": "/payments?show=book",
        "audit": "/audit",
        "health": "/health",
    }


def take(browser: Browser, url: str, key: str, pages: dict[str, str], themes: dict[str, Any], folder: Path) -> None:
    """Take screenshots of the pages in each theme."""
    for theme, options in themes.items():
        context = browser.new_context(**options, timezone_id="Europe/Madrid")
        visitor = Visitor(context, url).sign_in(key)
        for name, path in pages.items():
            page = visitor.open(path)
            time.sleep(SETTLE_SECONDS)
            picture = Image.open(io.BytesIO(page.screenshot()))
            end = "" if theme == "light" else f"-{theme}"
            picture.convert("RGB").quantize(COLOURS).save(folder / f"console-{name}{end}.png", optimize=True)
        assert visitor.complaints == [], visitor.complaints
        context.close()


def main(folder: Path) -> None:
    """Create the scene, take the screenshots, and print their number."""
    single_threaded()
    folder.mkdir(parents=True, exist_ok=True)
    retained = (
        {path.stem for path in folder.glob("console-*.png")} if folder.parts[-2:] == ("docs", "pictures") else set()
    )
    with ExitStack() as stack:
        ground = stack.enter_context(running_platform(planners=True))
        pages = play(ground)
        console = Console(ground.processes.url, ground.folder)
        stack.callback(console.stop)
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=list(ARGUMENTS))
        owners = {"me": "/me"}
        for key, shown in ((ground.processes.admin_key(), pages), (ground.agents[0].identity.api_key, owners)):
            for theme, options in THEMES.items():
                end = "" if theme == "light" else f"-{theme}"
                wanted = {
                    name: path for name, path in shown.items() if not retained or f"console-{name}{end}" in retained
                }
                if wanted:
                    take(browser, console.url, key, wanted, {theme: options}, folder)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
