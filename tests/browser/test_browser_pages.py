"""Every page in a real browser, with the data of a real platform, for every role."""

from __future__ import annotations

import csv
import io
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from coterie.version import VERSION
from tests.browser.conftest import PHONE, Visitor
from tests.browser.scene import LIAR, Console, Scene

PAGES = ("/", "/tasks", "/tasks/new", "/trust", "/privacy", "/payments", "/audit", "/health")
TABS = ("progress", "plan", "devices", "events", "versions", "settings")


def test_every_page_requires_sign_in(visitors: Any, console: Console) -> None:
    visitor = visitors()
    for path in (*PAGES, "/tasks/tsk_any", "/me"):
        visitor.page.goto(console.url + path)
        assert "/signin" in visitor.page.url, path
    assert "Sign in" in visitor.content()


def test_a_wrong_key_shows_an_error_and_opens_no_page(visitors: Any, console: Console) -> None:
    visitor = visitors()
    visitor.page.goto(f"{console.url}/signin")
    visitor.page.fill("input[name=api_key]", "coterie_not_a_key")
    visitor.page.click("button[type=submit]")
    assert "does not know this key" in visitor.content()
    visitor.complaints.clear()  # the browser notes the 401
    visitor.page.goto(console.url)
    assert "/signin" in visitor.page.url


def test_sign_in_leads_to_the_requested_page(visitors: Any, scene: Scene, console: Console) -> None:
    visitor = visitors()
    visitor.page.goto(f"{console.url}/tasks?state=failed")
    visitor.page.fill("input[name=api_key]", scene.platform.processes.admin_key())
    visitor.page.click("button[type=submit]")
    visitor.page.wait_for_selector("main h1")
    assert visitor.page.url.endswith("/tasks?state=failed")
    assert "hopeless" in visitor.content()
    assert "digits" not in visitor.content()


def test_signing_out_ends_the_session_for_the_cookie_too(admin: Visitor, console: Console) -> None:
    cookies = {cooky["name"]: cooky["value"] for cooky in admin.context.cookies() if cooky["name"] == "coterie"}
    (cookie,) = (cooky for cooky in admin.context.cookies() if cooky["name"] == "coterie")
    assert cookie["httpOnly"] is True
    assert cookie["sameSite"] == "Lax"
    admin.page.click("[aria-label='Sign out']")
    admin.page.wait_for_url("**/signin**")
    assert "signed out" in admin.content()
    answer = httpx.get(f"{console.url}/tasks", cookies=cookies, trust_env=False)
    assert answer.status_code == 303


def test_another_sites_form_changes_nothing(admin: Visitor, console: Console) -> None:
    cookies = {cooky["name"]: cooky["value"] for cooky in admin.context.cookies()}
    forged = {"Origin": "https://evil.example"}
    answer = httpx.post(f"{console.url}/signout", cookies=cookies, headers=forged, trust_env=False)
    assert answer.status_code == 403
    admin.open("/tasks")
    assert "digits" in admin.content()


@pytest.mark.parametrize("options", [{}, {"viewport": PHONE, "color_scheme": "dark"}], ids=["desktop", "phone, dark"])
def test_every_page_is_drawn_and_fits_its_window(visitors: Any, scene: Scene, options: dict[str, Any]) -> None:
    visitor: Visitor = visitors(scene.platform.processes.admin_key(), **options)
    paths = [*PAGES, *(f"/tasks/{scene.digits}?tab={tab}" for tab in TABS), f"/privacy?device={scene.id('hedy-watch')}"]
    paths += [f"/payments?show={tab}" for tab in ("payments", "prices", "accounts", "book")]
    for path in paths:
        page = visitor.open(path)
        wide, window = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert wide <= window, f"{path} is wider than its window"
        assert page.locator(".c-note.bad").count() == 0 or "failed" in visitor.content(), path
        assert page.locator("main h1").count() == 1, path


def test_the_overview_shows_alerts(admin: Visitor) -> None:
    page = admin.open("/")
    page.wait_for_selector("text=hopeless failed")
    assert "Devices online" in admin.content()
    assert "hedy-watch is at its owner's privacy limit" in admin.content()
    page.click("text=hopeless failed")
    page.wait_for_selector("text=The task failed")


def test_names_that_try_to_be_markup_are_text(admin: Visitor, scene: Scene) -> None:
    for path in ("/trust", f"/tasks/{scene.digits}?tab=plan", f"/tasks/{scene.digits}?tab=devices", "/audit"):
        page = admin.open(path)
        page.wait_for_timeout(300)
        assert page.evaluate("window.pwned") is None
    admin.open(f"/trust?device={scene.id(LIAR)}").wait_for_selector("text=Trusts most")
    assert LIAR in admin.content()
    assert admin.page.evaluate("window.pwned") is None


def test_a_tie_explains_why_two_devices_trust_each_other(admin: Visitor, scene: Scene) -> None:
    page = admin.open(f"/trust?device={scene.id('ada-phone')}")
    page.wait_for_selector("text=Trusts most")
    page.click("[aria-label*='with grace-phone']")
    page.wait_for_selector("text=Positive")
    page.wait_for_selector("text=ada-phone and grace-phone trust each other")
    content = admin.content()
    assert re.search(r"ada-phone and grace-phone trust each other [\d.]+", content)
    assert "Positive" in content


def test_a_device_is_found_by_name_and_drawn_with_its_ties(admin: Visitor) -> None:
    page = admin.open("/trust")
    page.wait_for_selector("canvas")
    page.get_by_label("Find a device").type("hedy")
    page.click("text=hedy-watch")
    page.wait_for_selector("text=Show all devices")
    page.wait_for_selector("h2:has-text('hedy-watch')")
    assert page.locator("main").get_by_text(re.compile(r"\d devices, \d+ ties")).count() == 1


def test_a_plan_is_drawn_over_trust_and_listed(admin: Visitor, scene: Scene) -> None:
    page = admin.open(f"/tasks/{scene.digits}?tab=plan")
    page.wait_for_selector("canvas")
    assert "with a head" in admin.content()
    assert "no device gains by a move that the receiving cluster accepts" in admin.content()
    assert "trusts the head" in admin.content()


def test_metrics_contributions_events_and_versions_of_a_task(admin: Visitor, scene: Scene) -> None:
    page = admin.open(f"/tasks/{scene.digits}")
    page.wait_for_selector("[aria-label='accuracy by round'] canvas")
    page.click("role=tab[name='Devices']")
    page.wait_for_selector("text=Share of the result")
    page.click("role=tab[name='Events']")
    page.wait_for_selector("text=round 3 opened")
    page.get_by_label("Text").last.fill("settled")
    page.wait_for_selector("text=round 3 opened", state="detached")
    page.click("role=tab[name='Versions']")
    page.wait_for_selector("text=SHA-256")
    with page.expect_download() as download:
        page.locator("a:has-text('safetensors')").first.click()
    assert download.value.suggested_filename.endswith(".safetensors")
    newest = scene.admin.task(scene.digits).model_digests[0]
    expected = scene.admin.download_model(newest).read_bytes()
    assert Path(download.value.path()).read_bytes() == expected


def test_a_statement_is_exported_to_the_micro_credit(admin: Visitor, scene: Scene) -> None:
    account = f"device:{scene.id('ada-phone')}"
    page = admin.open(f"/payments?account={account}")
    page.wait_for_selector("text=Statement: device ada-phone")
    with page.expect_download() as download:
        page.click("text=Download CSV >> nth=0")
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    total = sum(int(row["amount_microcredits"]) for row in rows)
    book = scene.admin.account(account)
    assert total == book.balance_microcredits > 0


def test_the_book_is_checked_on_request(admin: Visitor) -> None:
    page = admin.open("/payments?show=book")
    page.click("text=Check the book")
    page.wait_for_selector("text=The book is correct")


def test_the_audit_log_is_verified_when_its_page_is_opened(admin: Visitor) -> None:
    admin.open("/audit").wait_for_selector("text=the hash chain of all")


def test_a_publisher_sees_its_own_and_nothing_of_others(visitors: Any, scene: Scene) -> None:
    rival: Visitor = visitors(scene.rival_key)
    for path in ("/", "/tasks", "/payments", "/trust"):
        rival.open(path)
        assert "digits" not in rival.content(), path
        assert "ada-phone" not in rival.content(), path
    for path in (f"/tasks/{scene.digits}", "/audit", "/privacy", "/health", f"/trust?task={scene.digits}"):
        rival.open(path).wait_for_selector("text=You may not see this")
    rival.open(f"/payments?account=device:{scene.id('ada-phone')}")
    assert "You may not see this" in rival.content()
    answer = rival.page.request.get(f"{rival.url}/files/statements/device:{scene.id('ada-phone')}")
    assert answer.status == 403
    assert rival.page.locator("nav a div").all_inner_texts() == ["Overview", "Tasks", "Trust", "Payments"]
    rival.open("/tasks")
    assert "rivals-secret" in rival.content()


def test_a_publisher_watches_its_own_task(visitors: Any, scene: Scene) -> None:
    publisher: Visitor = visitors(scene.publisher_key)
    page = publisher.open(f"/tasks/{scene.digits}?tab=plan")
    page.wait_for_selector("canvas")
    assert "ada-phone" in publisher.content()
    publisher.open("/tasks")
    assert "rivals-secret" not in publisher.content()


def test_a_revoked_key_ends_the_session(visitors: Any, scene: Scene) -> None:
    made = scene.admin.create_key("publisher", "passing")
    visitor: Visitor = visitors(made.api_key)
    scene.admin.revoke_key(made.id)
    visitor.page.goto(f"{visitor.url}/tasks")
    visitor.page.wait_for_url("**/signin**")
    assert "no longer accepts your key" in visitor.content()


def test_a_task_is_published_from_the_form_and_watched_until_it_finishes(visitors: Any, scene: Scene) -> None:
    """A publisher corrects a wrong number, publishes the task and watches it finish."""
    publisher: Visitor = visitors(scene.publisher_key)
    page = publisher.open("/tasks/new?preset=clusters")
    page.get_by_label("Name", exact=True).fill("from-the-form")
    page.get_by_label("Rounds", exact=True).fill("0")
    page.wait_for_selector("text=At least 1.")
    page.click("text=Publish the task")
    page.wait_for_selector("text=Some fields are invalid")
    page.get_by_label("Rounds", exact=True).fill("3")
    page.get_by_label("Devices at least", exact=True).fill(str(len(scene.homes)))
    page.wait_for_selector("text=A device without a cluster spends ε")
    page.click("text=Publish the task")
    page.wait_for_selector("text=Upload an initial model")
    page.get_by_label("Or the newest model of").click()
    page.click(".q-menu >> text=digits")
    page.click("text=Publish the task")
    page.wait_for_selector("h1:has-text('from-the-form')")
    assert f"0 of at least {len(scene.homes)} devices have joined" in publisher.content()
    scene.work(page.url.rpartition("/")[2])
    page.wait_for_selector(".c-chip:has-text('finished')", timeout=60_000)
    page.wait_for_selector("text=3 of 3 rounds done")
    page.wait_for_selector("[aria-label='accuracy by round'] canvas")


def test_a_waiting_task_is_cancelled_with_a_reason(visitors: Any, scene: Scene) -> None:
    task = scene.publish(scene.publisher, "to-cancel", preset="fedavg")
    publisher: Visitor = visitors(scene.publisher_key)
    page = publisher.open(f"/tasks/{task}")
    page.click("text=Start")
    page.wait_for_selector(".q-notification")  # too few devices
    page.click("role=button[name='Cancel']")
    page.get_by_label("Reason (visible to owners)").fill("the question was wrong")
    page.click("text=Cancel the task")
    page.wait_for_selector("text=the question was wrong")
    assert scene.admin.task(task).state == "cancelled"


def test_the_page_says_so_while_the_platform_is_away_and_recovers(visitors: Any, scene: Scene) -> None:
    visitor: Visitor = visitors(scene.platform.processes.admin_key())
    page = visitor.open("/health")
    page.wait_for_selector("text=All services answer")
    assert visitor.content().count(f"version {VERSION}") == 5
    assert len(re.findall(r"p50 \d+ m?s, p95 \d+ m?s of [\d,]+ calls?", visitor.content())) == 5
    page.click("button:has-text('Count')")
    page.wait_for_selector("text=Unused")
    scene.platform.kill("gateway")
    try:
        page.wait_for_selector("text=The platform does not answer", timeout=30_000)
    finally:
        scene.platform.restart("gateway")
    page.wait_for_selector("text=The platform does not answer", state="detached", timeout=30_000)


def test_the_menu_works_from_the_keyboard(admin: Visitor) -> None:
    """The link that skips it, the head, the menu, then the page: refreshed figures take no focus from these."""
    page = admin.open("/")
    page.get_by_role("heading", name="Needs attention").wait_for()
    walked = []
    for _ in range(12):
        page.evaluate("window.before = document.activeElement")
        page.keyboard.press("Tab")
        page.wait_for_function("![document.body, window.before].includes(document.activeElement)")
        focused = "document.activeElement"
        walked.append(str(page.evaluate(f"{focused}.ariaLabel || {focused}.textContent")).strip())
        if walked[-1] == "monitor_heartHealth":
            break
    assert walked == [
        "Skip to content",
        "Coterie",
        "Dark colours",
        "Sign out",
        "dashboardOverview",
        "model_trainingTasks",
        "hubTrust",
        "shieldPrivacy",
        "paymentsPayments",
        "fact_checkAudit",
        "monitor_heartHealth",
    ]
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/audit")
    assert page.locator("button:not([aria-label]):not(:has-text('')), img:not([alt])").count() == 0


def test_times_are_in_the_browsers_zone(visitors: Any, scene: Scene) -> None:
    created = scene.admin.task(scene.digits).created_at
    for zone, hours in (("UTC", 0), ("Asia/Tokyo", 9)):
        visitor: Visitor = visitors(scene.platform.processes.admin_key(), timezone_id=zone)
        visitor.open(f"/tasks/{scene.digits}?tab=settings")
        content = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(created + hours * 3600))
        assert content in visitor.content()
