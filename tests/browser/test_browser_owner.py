"""The owner's page on a phone: what my device gave away and earned, and leaving."""

from __future__ import annotations

import math
import re
from typing import Any

from coterie.home import DeviceHome
from coterie.registration import register_device
from coterie.sums.circle import fingerprint_words
from tests.browser.conftest import PHONE, Visitor
from tests.browser.scene import Scene


def test_an_owner_sees_what_the_device_gave_away_and_earned_and_nothing_of_others(visitors: Any, scene: Scene) -> None:
    reports = {each: scene.admin.privacy(scene.id(each)).tasks for each in scene.homes}
    name, noised = next(
        (each, told) for each, tasks in reports.items() for told in tasks if math.isfinite(told.epsilon)
    )
    owner: Visitor = visitors(scene.key(name), viewport=PHONE)
    owner.page.wait_for_url("**/me")
    told = owner.content()
    assert re.search(rf"ε = {noised.epsilon:.3g}", told)
    assert name in told
    balance = scene.admin.account(f"device:{scene.id(name)}").balance_microcredits
    assert balance > 0
    assert f"{balance // 1_000_000:,}" in told
    for other in {"ada-phone", "grace-phone", "Grace"} - {name}:
        assert other not in told
    assert fingerprint_words(scene.homes[name].keys().public().signing) in told
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


def test_a_devices_key_opens_no_page_of_admins_and_an_admins_no_owners_page(visitors: Any, scene: Scene) -> None:
    owner: Visitor = visitors(scene.key("ada-phone"))
    for path in ("/", "/tasks", "/trust", "/privacy", "/payments", "/audit", "/health", f"/tasks/{scene.digits}"):
        owner.open(path)
        assert "not yours to see" in owner.content(), path
    admin: Visitor = visitors(scene.platform.processes.admin_key())
    admin.open("/me")
    assert "not yours to see" in admin.content()


def test_an_owner_revokes_the_device_and_its_key_stops_working(visitors: Any, scene: Scene) -> None:
    token = scene.admin.issue_token(scene.admin.create_owner("Zoe").id).token
    home = DeviceHome(scene.platform.folder / "homes" / "zoe")
    register_device(home, scene.platform.processes.url, token, name="old-phone")
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
