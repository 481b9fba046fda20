"""Ten thousand devices and a hundred thousand ties, measured in the browser."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import DESKTOP, Visitor
from tests.browser.scene import Console
from tests.e2e.real_platform import real_platform

DEVICES, TIES, OWNERS, TOWNS = 10_000, 100_000, 1_200, 50
FIRST_PAINT_SECONDS, INTERACTION_SECONDS = 2.0, 0.2
# Does something and resolves with the milliseconds until the sentence under the graph has changed and is painted.
CHANGE = """([act]) => new Promise((resolve) => {
  const summary = () => document.querySelector('[data-summary]').textContent;
  const before = summary(), began = performance.now();
  const look = () => {
    const place = document.querySelector('[data-summary]');
    if (place && summary() !== before && document.querySelector('.c-main canvas')) {
      requestAnimationFrame(() => resolve(performance.now() - began));
    } else requestAnimationFrame(look);
  };
  eval(act);
  look();
})"""


def lines() -> Iterator[bytes]:
    """An import: towns of devices that mostly know their own."""
    random = np.random.default_rng(1)
    town = np.sort(random.integers(0, TOWNS, DEVICES))
    starts, ends = np.searchsorted(town, town), np.searchsorted(town, town, side="right")
    yield json.dumps({"name": "large", "owner_name": "Town", "synthetic": True}).encode() + b"\n"
    for number in range(DEVICES):
        device = {"name": f"device-{number:05d}", "kind": "sensor"}
        row = {"line": number + 1, "owner_name": f"owner {number % OWNERS:04d}", "device": device}
        yield json.dumps(row).encode() + b"\n"
    pairs: set[tuple[int, int]] = set()
    while len(pairs) < TIES:
        a = int(random.integers(DEVICES))
        b = int(random.integers(starts[a], ends[a])) if random.random() < 0.85 else int(random.integers(DEVICES))
        if a != b:
            pairs.add((min(a, b), max(a, b)))
    now = time.time()
    for number, (a, b) in enumerate(sorted(pairs)):
        met = {"device_a": f"device-{a:05d}", "device_b": f"device-{b:05d}", "positive": bool(random.random() < 0.95)}
        met |= {"duration_seconds": float(random.integers(30, 900)), "at": now - float(random.integers(60, 86_400))}
        yield json.dumps({"line": DEVICES + number + 1, "interaction": met}).encode() + b"\n"


@pytest.fixture(scope="module")
def large(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    """An admin's browser on a console of a large platform."""
    folder: Path = tmp_path_factory.mktemp("large")
    with real_platform(folder) as platform:
        key = platform.processes.admin_key()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/octet-stream"}
        url = f"{platform.processes.url}/v1/trust/imports"
        answer = httpx.post(url, content=lines(), headers=headers, timeout=600.0, trust_env=False)
        assert answer.json()["interactions"] == TIES, answer.text
        console = Console(platform.processes.url, folder)
        context = chromium.new_context(viewport=DESKTOP)  # type: ignore[arg-type]
        try:
            yield Visitor(context, console.url).sign_in(key)
        finally:
            context.close()
            console.stop()


def best(page: Page, act: str, back: str) -> float:
    """Seconds of the quickest of six: what is measured is the console, not the machine's other work."""
    times = []
    for _ in range(6):
        times.append(float(page.evaluate(CHANGE, [act])) / 1000)
        page.evaluate(CHANGE, [back])
    return min(times)


@pytest.mark.slow
def test_ten_thousand_devices_are_drawn_at_once_and_stay_fluid(large: Visitor) -> None:
    page = large.open("/trust")
    page.wait_for_selector("[data-summary]", timeout=60_000)
    assert "10,000 devices" in large.content()
    paints, draws = [], []
    for _ in range(3):
        page.reload()
        page.wait_for_selector(".c-main canvas")
        paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"))
        draws.append(page.evaluate("performance.now() / 1000"))
    paint, drawn = min(paints), min(draws)
    figures = {"first paint": paint, "graph drawn": drawn}
    figures["group by owner"] = best(page, _click("Owners"), _click("Communities"))
    page.evaluate(CHANGE, [_click("Owners")])
    print({name: f"{seconds * 1000:.0f} ms" for name, seconds in figures.items()})
    assert paint < FIRST_PAINT_SECONDS
    assert drawn < FIRST_PAINT_SECONDS
    assert figures["group by owner"] < INTERACTION_SECONDS
    assert large.complaints == []


def _click(label: str) -> str:
    return f"[...document.querySelectorAll('.q-btn-toggle button')].find((b) => b.textContent === '{label}').click()"
