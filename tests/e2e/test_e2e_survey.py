"""A survey over the real platform: asked from the command line, answered with noise, published with its bound, paid."""

from __future__ import annotations

import json
import math
import os
import secrets
import subprocess
import sys
import time
from fractions import Fraction
from typing import Any

import pytest
from safetensors.numpy import load

from coterie.agent import Agent
from coterie.client import Platform
from coterie.privacy.ledger import Limit
from tests.e2e.crew import Shift
from tests.e2e.real_platform import PATIENT, RealPlatform

QUESTION = "How long is your way to work, in minutes?"
ANSWERS = {"u1": 12.3456, "u2": 25.0, "u3": 31.0, "u4": 44.0, "u5": 18.0, "anxious": 9.87654}
DEPOSIT, ESCROW = 50_000_000, 20_000_000


def coterie(platform: RealPlatform, key: str, *arguments: str) -> Any:
    """Runs the command, as a publisher would; its JSON."""
    environment = {**os.environ, "COTERIE_URL": platform.processes.url, "COTERIE_API_KEY": key}
    command = [sys.executable, "-m", "coterie_cli.main", *arguments, "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def befriend(platform: RealPlatform, ids: list[str]) -> None:
    ring = list(zip(ids, ids[1:] + ids[:1], strict=True))
    platform.admin.record_interactions(
        {
            "id": f"{secrets.token_hex(4)}-{number}",
            "device_a": a,
            "device_b": b,
            "positive": True,
            "duration_seconds": 600.0,
            "at": time.time() - 3600.0 * (number + 1),
            "kind": "meeting",
        }
        for a, b in ring
        for number in range(3)
    )


def test_a_question_is_answered_published_and_paid(shared_platform: RealPlatform) -> None:
    platform = shared_platform
    homes = platform.register(*ANSWERS)
    for name, answer in ANSWERS.items():
        care = {"care": {"own": 40.0}} if name == "anxious" else {}
        homes[name].save_private_settings({"answers": {QUESTION: answer}} | care)
    agents = {name: Agent(home.folder, limit=Limit(8.0, 1e-5), poll_seconds=1.0) for name, home in homes.items()}
    befriend(platform, [agent.identity.id for agent in agents.values()])
    made = platform.admin.create_key("publisher", f"publisher {secrets.token_hex(4)}")
    account = f"publisher:{made.principal.subject}"
    platform.admin.deposit(account, DEPOSIT, key="opening")
    task = coterie(
        platform, made.api_key, "task", "create", "way to work", "--preset", "survey", "--question", QUESTION,
        "--low", "0", "--high", "60", "--escrow", str(ESCROW // 1_000_000), "--min-devices", "3",
        "--parameters", '{"pricing": {"constant": 5.0, "own_care": 0.5, "social_care": 0.25}}',
    )["id"]  # fmt: skip
    shift = Shift(platform, list(agents.values()), task)
    platform.wait_until(lambda: platform.admin.task(task).enrolled == len(ANSWERS))
    with Platform(platform.processes.url, made.api_key, backoff=PATIENT) as publisher:
        publisher.start_task(task)
    ended = platform.admin.wait_for_end(task)
    shift.wait()
    assert ended.state == "finished", shift.describe()

    document = coterie(platform, made.api_key, "task", "results", task)
    (round_,) = document["rounds"]
    found = round_["metrics"]
    payments = {p.device_id: p for p in platform.admin.payments(task=task)}
    answered = [agents[name].identity.id for name in ANSWERS if name != "anxious"]
    assert sorted(payments) == sorted(answered)
    total = sum(payments[device].budget for device in answered)
    assert found["answers"] == 5
    assert found["total_variance"] == pytest.approx(total)
    assert found["error_bound"] == pytest.approx(math.sqrt(total / 0.05) / 5 * 60)
    truth = sum(ANSWERS[name] for name in ANSWERS if name != "anxious") / 5
    assert abs(found["estimate"] - truth) < 6 * found["standard_error"]
    final = load(platform.admin.download_model(ended.model_digests[0]).read_bytes())
    published = min(max(float(final["value"][0]) * 60, 0.0), 60.0)  # an estimate stays on its scale
    assert published == pytest.approx(found["estimate"])

    prices = platform.admin.prices(task, 1)
    for offer in prices.offers:
        payment = payments.get(offer.device_id)
        if payment is not None:
            worth = math.floor(offer.base_microcredits - offer.slope_microcredits * Fraction(payment.budget))
            assert payment.amount_microcredits == max(0, min(worth, offer.most_microcredits)) > 0
    paid = sum(p.amount_microcredits for p in payments.values())
    assert paid <= ESCROW

    for name, home in homes.items():
        spent = home.ledger().spent()
        assert (spent.releases, 0.0 < spent.epsilon < 8.0) == ((0, False) if name == "anxious" else (1, True))
    states = {p.device_id: (p.state, p.metrics) for p in platform.admin.round(task, 1).participations}
    assert states[agents["anxious"].identity.id][0] == "declined"
    assert all(metrics == {} for _, metrics in states.values())  # an answer's norm would be the answer


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--preset", "survey"], "--question"),
        (["--question", "How much?"], "--preset survey"),
        (["--preset", "survey", "--question", "How much?", "--low", "3", "--high", "2"], "--low and --high"),
    ],
)
def test_a_survey_that_is_none_is_refused_before_anything_is_sent(arguments: list[str], why: str) -> None:
    command = [sys.executable, "-m", "coterie_cli.main", "task", "create", "x", *arguments, "--key", "k"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert why in done.stderr
    assert "Traceback" not in done.stderr
