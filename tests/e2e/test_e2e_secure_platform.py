"""The platform killed with -9 in every state of a secure sum: the model is that of the clear star all the same."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator

import pytest

from coterie.records import Task
from tests.e2e.neighbours import NeighbourFixture
from tests.e2e.real_platform import RealPlatform, real_platform

PATIENT = {"sums": {"mode": "secure", "offer_seconds": 30.0, "clerk_seconds": 60.0}}
"""Longer than it takes devices to find the platform again."""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPlatform]:
    with real_platform(tmp_path_factory.mktemp("secure-bad-days")) as result:
        yield result


@pytest.fixture(scope="module")
def neighbours(platform: RealPlatform) -> Iterator[NeighbourFixture]:
    made = NeighbourFixture(platform, f"p{secrets.token_hex(2)}-", 5)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def undisturbed(neighbours: NeighbourFixture) -> tuple[str, ...]:
    """The model of the clear star."""
    return neighbours.run(neighbours.publish(secure=False)).model_digests


def has_event(platform: RealPlatform, task: str, kind: str) -> Callable[[], bool]:
    return lambda: any(event.kind == kind for event in platform.admin.events(task))


def has_deliveries(platform: RealPlatform, task: str, count: int) -> Callable[[], bool]:
    def delivered() -> bool:
        return platform.admin.task(task).round >= 1 and platform.admin.round(task, 1).round.delivered >= count

    return delivered


@pytest.mark.parametrize(
    "state",
    [
        "checking",
        *(
            pytest.param(s, marks=pytest.mark.slow)
            for s in ("selecting", "open", "delivering", "answering", "settling")
        ),
    ],
)
@pytest.mark.parametrize(
    "services",
    [
        ("aggregation",),
        pytest.param(("aggregation", "gateway", "topology", "trust", "pricing"), marks=pytest.mark.slow),
    ],
)
def test_the_platform_killed_in_any_state_of_a_sum_changes_no_bit(
    platform: RealPlatform,
    neighbours: NeighbourFixture,
    undisturbed: tuple[str, ...],
    state: str,
    services: tuple[str, ...],
) -> None:
    if len(services) > 1 and state not in ("open", "answering"):
        pytest.skip("all services at once are killed in two of the states")
    task = neighbours.publish(parameters=PATIENT)
    reached = {
        "selecting": has_event(platform, task, "sum.committee_selected"),
        "open": has_event(platform, task, "sum.opened"),
        "delivering": has_deliveries(platform, task, 2),
        "checking": has_deliveries(platform, task, 5),
        "answering": has_event(platform, task, "sum.counted"),
        "settling": has_event(platform, task, "sum.unmasked"),
    }[state]
    ended: list[Task] = []
    working = threading.Thread(target=lambda: ended.append(neighbours.run(task)))
    working.start()
    platform.wait_until(reached, 90.0)
    for service in services:
        platform.kill(service)
    for service in reversed(services):
        platform.processes.start_one(service)
    platform.processes.wait_until_healthy(120.0)
    working.join(180)
    assert ended, neighbours.story(task)
    assert ended[0].model_digests == undisturbed
    assert [round_.state for round_ in platform.admin.rounds(task)] == ["done", "done"]
    opened = [event for event in platform.admin.events(task) if event.kind == "sum.unmasked"]
    assert len(opened) == 2, "each sum is opened once"
