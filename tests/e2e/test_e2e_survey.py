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
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from coterie.agent.agent import Agent
from coterie.client import Platform
from coterie.privacy.ledger import Limit
from tests.e2e.device_group import Shift
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
    result = round_["metrics"]
    payments = {p.device_id: p for p in platform.admin.payments(task=task)}
    answered = [agents[name].identity.id for name in ANSWERS if name != "anxious"]
    assert sorted(payments) == sorted(answered)
    total = sum(payments[device].budget for device in answered)
    assert result["answers"] == 5
    assert result["total_variance"] == pytest.approx(total)
    assert result["error_bound"] == pytest.approx(math.sqrt(total / 0.05) / 5 * 60)
    truth = sum(ANSWERS[name] for name in ANSWERS if name != "anxious") / 5
    assert abs(result["estimate"] - truth) < 6 * result["standard_error"]
    final = load(platform.admin.download_model(ended.model_digests[0]).read_bytes())
    published = min(max(float(final["value"][0]) * 60, 0.0), 60.0)  # an estimate stays on its scale
    assert published == pytest.approx(result["estimate"])

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


def test_second_survey_is_priced_by_correlation_and_composed(
    shared_platform: RealPlatform,
) -> None:
    """Correlation is the publisher's to say, for all and for those who live together; one answer is known already."""
    platform, names = shared_platform, ("v1", "v2", "v3", "v4", "spent")
    homes = platform.register(*names)
    for number, name in enumerate(names):
        homes[name].save_private_settings({"answer": 10.0 + number})
    agents = {name: Agent(home.folder, limit=Limit(30.0, 1e-5), poll_seconds=1.0) for name, home in homes.items()}
    ids = {name: agent.identity.id for name, agent in agents.items()}
    befriend(platform, list(ids.values()))
    made = platform.admin.create_key("publisher", f"publisher {secrets.token_hex(4)}")
    platform.admin.deposit(f"publisher:{made.principal.subject}", DEPOSIT, key="opening")

    def survey(label: str, **pricing: Any) -> str:
        parameters = {"pricing": {"constant": 5.0, "own_care": 0.5, "social_care": 0.25, **pricing}}
        task: str = coterie(
            platform, made.api_key, "task", "create", label, "--preset", "survey", "--question", QUESTION,
            "--low", "0", "--high", "60", "--escrow", "20", "--min-devices", "3",
            "--parameters", json.dumps(parameters),
        )["id"]  # fmt: skip
        shift = Shift(platform, list(agents.values()), task)
        platform.wait_until(lambda: platform.admin.task(task).enrolled == len(names))
        platform.admin.start_task(task)
        ended = platform.admin.wait_for_end(task)
        shift.wait()
        assert ended.state == "finished", shift.describe()
        return task

    first = survey("first")
    before = {name: home.ledger().spent() for name, home in homes.items()}
    assert {spent.releases for spent in before.values()} == {1}
    agents["spent"] = Agent(homes["spent"].folder, limit=Limit(1.01 * before["spent"].epsilon, 1e-5), poll_seconds=1.0)
    together = [{"devices": [ids["v1"], ids["v2"]], "correlation": 6.0}]
    second = survey("second", correlation=1.0, variance_model="exact", known=[ids["v3"]], alike=together)

    details = platform.admin.prices(second, 1).details
    order = [offer.device_id for offer in platform.admin.prices(second, 1).offers]
    weights = np.ones((5, 5)) - np.eye(5)
    one, two = order.index(ids["v1"]), order.index(ids["v2"])
    weights[one, two] = weights[two, one] = 6.0
    laplacian = np.diag(weights.sum(axis=1)) - weights
    for user, variance in enumerate(details["hidden_variances"]):
        unknown = [other for other in range(5) if other not in (user, order.index(ids["v3"]))]
        by_hand = np.linalg.solve(laplacian[np.ix_(unknown, unknown)], np.ones(len(unknown))).sum()
        assert variance == pytest.approx(by_hand), "1ᵀ(L_MM)⁻¹1 over the unknown answers"
    assert details["known"] == [ids["v3"]]

    after = {name: home.ledger().spent() for name, home in homes.items()}
    for name in ("v1", "v2", "v3", "v4"):
        assert (after[name].releases, after[name].epsilon > before[name].epsilon) == (2, True)
        reported = platform.admin.privacy(ids[name])
        assert {task.task_id for task in reported.tasks} == {first, second}
    assert (after["spent"].releases, after["spent"].epsilon) == (1, before["spent"].epsilon)
    states = {part.device_id: part.state for part in platform.admin.round(second, 1).participations}
    assert states[ids["spent"]] == "declined", "both answers together would be more than its owner allows"
    survey_metrics = coterie(platform, made.api_key, "task", "results", second)["rounds"][0]["metrics"]
    assert survey_metrics["interval"] == pytest.approx(NormalDist().inv_cdf(0.975) * survey_metrics["standard_error"])


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
