"""The owner's page on a phone: spending, earnings, decisions, and leaving."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from coterie.agent.agent import Agent
from coterie.agent.home import DeviceHome, introduce
from coterie.agent.registration import register_device
from coterie.errors import NotFound
from coterie.secure_sums.circle import fingerprint_words
from tests.browser.conftest import PHONE, Visitor
from tests.browser.scene import OPEN_LIMIT, Scene
from tests.e2e.test_e2e_clusters import Scripted, change


def test_owner_sees_what_device_gave_away_and_earned_and_nothing_of_others(visitors: Any, scene: Scene) -> None:
    reports = {home: scene.admin.privacy(scene.id(home)).tasks for home in scene.homes}
    name, noised = next(
        (item, content) for item, tasks in reports.items() for content in tasks if math.isfinite(content.epsilon)
    )
    owner: Visitor = visitors(scene.key(name), viewport=PHONE)
    owner.page.wait_for_url("**/me")
    content = owner.content()
    assert re.search(rf"ε = {noised.epsilon:.3g}", content)
    assert name in content
    balance = scene.admin.account(f"device:{scene.id(name)}").balance_microcredits
    assert balance > 0
    assert f"{balance // 1_000_000:,}" in content
    for other in {"ada-phone", "grace-phone", "Grace"} - {name}:
        assert other not in content
    assert fingerprint_words(scene.homes[name].keys().public().signing) in content
    code = owner.page.get_by_alt_text("The device's invitation into a circle, as a QR code")
    assert code.evaluate("image => image.naturalWidth") > 0
    wide = owner.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= PHONE["width"]


def test_an_owner_reads_what_a_task_would_learn_before_joining(visitors: Any, scene: Scene) -> None:
    owner: Visitor = visitors(scene.key("ada-laptop"), viewport=PHONE, color_scheme="dark")
    assert "rivals-secret" in owner.content()
    owner.page.click("text=rivals-secret")
    owner.page.wait_for_selector("text=without noise: no ε describes it")
    assert "Pays" in owner.content()


def test_devices_key_opens_no_page_of_admins_and_admins_no_owners_page(visitors: Any, scene: Scene) -> None:
    owner: Visitor = visitors(scene.key("ada-phone"))
    for path in ("/", "/tasks", "/trust", "/privacy", "/payments", "/audit", "/health", f"/tasks/{scene.digits}"):
        owner.open(path)
        assert "You may not see this" in owner.content(), path
    admin: Visitor = visitors(scene.platform.processes.admin_key())
    admin.open("/me")
    assert "You may not see this" in admin.content()


def register_new_device(scene: Scene, owner: str, name: str) -> tuple[DeviceHome, str]:
    """Register a device of a new owner; return its folder and id."""
    token = scene.admin.issue_token(scene.admin.create_owner(owner).id).token
    home = DeviceHome(scene.platform.folder / "homes" / name)
    return home, register_device(home, scene.platform.processes.url, token, name=name).id


@contextmanager
def opened_link(home: DeviceHome, console_url: str) -> Iterator[tuple[str, Any]]:
    """Yield the address that `coterie device link` shows, and the waiting command."""
    command = [sys.executable, "-m", "coterie_cli.main", "device", "link", "--home", str(home.folder), "--json"]
    waiting = subprocess.Popen(
        [*command, "--console", console_url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "400", "PYTHONUNBUFFERED": "1"},
    )
    with waiting:
        try:
            assert waiting.stderr is not None
            yield next(line.strip() for line in waiting.stderr if "#lnk_" in line), waiting
        finally:
            waiting.terminate()


def test_owner_pairs_browser_approves_pauses_and_signs_in_again(visitors: Any, scene: Scene) -> None:
    home, device = register_new_device(scene, "Nora", "nora-phone")
    introduce(home, scene.homes["grace-phone"])
    task = scene.clusters("kitchen", rounds=2, min_devices=1, quorum=1.0)
    owner: Visitor = visitors(viewport=PHONE)
    page = owner.page
    with opened_link(home, owner.url) as (address, waiting):
        page.goto(address)
        page.click("#link")
        page.wait_for_url("**/me")
        linked = json.loads(waiting.communicate(timeout=30)[0])
    assert address.split("#")[1] not in page.url
    (browser,) = home.browsers().values()
    assert (linked["link"], linked["device"]) == (browser.link, device)
    before = scene.admin.privacy(device).epsilon
    agent = Agent(
        home.folder,
        samples=10,
        limit=OPEN_LIMIT,
        cache=scene.platform.cache,
        poll_seconds=1.0,
        choose=lambda _: Scripted(change(5)),
    )
    running = threading.Thread(target=agent.run, kwargs={"ask_owner": True}, daemon=True)
    running.start()
    page.click("text=kitchen")
    page.click("button:has-text('Approve')")
    page.wait_for_selector("text=applied: joined")
    scene.finish(task)
    page.click("text=Pause the device")
    page.wait_for_selector("button:has-text('Resume the device')")
    assert home.is_paused
    page.wait_for_selector("text=paused: it declines all work")
    after = scene.admin.privacy(device).epsilon
    assert after > before
    page.reload()
    page.wait_for_selector("text=/of your limit 1000000/")
    content = owner.content()
    assert fingerprint_words(scene.homes["grace-phone"].keys().public().signing) in content  # of the circle
    assert re.search(rf"{after:.3g}", content)
    agent.stop()
    running.join(20)
    page.click("[aria-label='Sign out']")
    page.click("text=Sign in for nora-phone")
    page.wait_for_url("**/me")
    owner.page.wait_for_selector("text=Linked browsers")
    page.click("button:has-text('Unlink')")
    page.wait_for_url("**/signin**")  # its session went with the link
    with scene.platform.as_device(home) as itself, pytest.raises(NotFound):
        itself.put_note(device, browser.link, b"")


def test_a_link_opens_for_only_one_browser(visitors: Any, scene: Scene) -> None:
    home = scene.homes["grace-phone"]
    owner, thief = visitors(viewport=PHONE), visitors()
    with opened_link(home, owner.url) as (address, waiting):
        owner.page.goto(address)
        owner.page.click("#link")
        owner.page.wait_for_url("**/me")
        waiting.communicate(timeout=30)
    thief.page.goto(address)
    thief.page.click("#link")
    thief.page.wait_for_selector("text=Another browser has taken this link")
    thief.page.goto(thief.url + "/link")
    thief.page.wait_for_selector("text=This address is incomplete")
    thief.complaints.clear()  # the refusal itself is logged by the browser as an error
    home.forget_browser(next(iter(home.browsers())))


def test_an_owner_deletes_the_device_and_only_its_id_stays(visitors: Any, scene: Scene) -> None:
    home, device = register_new_device(scene, "Yan", "spare-phone")
    identity = home.identity()
    assert identity is not None
    owner: Visitor = visitors(identity.api_key, viewport=PHONE)
    assert "What models have learnt" in owner.content()
    owner.page.click("text=Delete this device")
    owner.page.click("text=Delete it")
    owner.page.wait_for_url("**/signin**")
    left = scene.admin.device(device)
    assert (left.name, left.state) == (device, "revoked")
    assert scene.admin.owner(identity.owner_id).name == identity.owner_id


def test_an_owner_revokes_the_device_and_its_key_stops_working(visitors: Any, scene: Scene) -> None:
    home, _ = register_new_device(scene, "Zoe", "old-phone")
    identity = home.identity()
    assert identity is not None
    owner: Visitor = visitors(identity.api_key, viewport=PHONE)
    owner.page.click("text=Revoke this device")
    owner.page.click("text=Revoke it")
    owner.page.wait_for_url("**/signin**")
    assert scene.admin.device(identity.id).state == "revoked"


def test_the_page_can_be_installed(visitors: Any) -> None:
    visitor: Visitor = visitors()
    manifest = visitor.page.request.get(f"{visitor.url}/manifest.webmanifest").json()
    assert manifest["start_url"] == "/me"
    icon = visitor.page.request.get(f"{visitor.url}{manifest['icons'][0]['src']}")
    assert icon.headers["content-type"] == "image/svg+xml"
