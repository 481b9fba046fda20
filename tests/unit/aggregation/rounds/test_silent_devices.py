"""Which devices a round is opened for when some fell silent."""

from __future__ import annotations

from coterie.records.enums import EnrolmentState, ParticipationState, Role, RoundState
from coterie_api.trust.v1 import trust_pb2 as trust
from services.aggregation.domain.records import Enrolment, Participation, Round
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.rounds.round_inputs import without_silent

LAST = Round("t", 3, 1, RoundState.DONE, 2, 1, 100.0, 160.0, 1)


def asked(states: dict[str, str], seen: dict[str, float], *, enrolled_at: float = 1.0, **spec: int) -> set[str]:
    devices = {name: trust.Device(id=name, last_seen_at=at) for name, at in seen.items()}
    enrolled = [Enrolment("t", name, EnrolmentState.ACTIVE, 10, 0.0, enrolled_at) for name in seen]
    earlier = [
        Participation("t", 3, name, "own", Role.PEER, ParticipationState(state), 10, b"")
        for name, state in states.items()
    ]
    return set(without_silent(devices, enrolled, earlier, LAST, TaskSpecification("n", **spec)))  # type: ignore[arg-type]


def test_dropped_silent_device_is_excluded_until_it_reports_again() -> None:
    states = {"a": "delivered", "b": "dropped", "c": "dropped"}
    assert asked(states, {"a": 50.0, "b": 99.0, "c": 101.0}) == {"a", "c"}


def test_excluded_device_stays_out_until_heard_of_and_newcomers_are_asked() -> None:
    assert asked({"a": "delivered"}, {"a": 50.0, "b": 99.0}) == {"a"}
    assert asked({"a": "delivered"}, {"a": 50.0, "b": 120.0}) == {"a", "b"}
    assert asked({"a": "delivered"}, {"a": 50.0, "b": 0.0}, enrolled_at=130.0) == {"a", "b"}


def test_devices_not_drawn_by_lot_are_not_silent() -> None:
    assert asked({"a": "delivered"}, {"a": 50.0, "b": 99.0}, max_devices=1) == {"a", "b"}


def test_all_devices_are_asked_when_too_few_would_be_left() -> None:
    assert asked({"a": "delivered", "b": "dropped"}, {"a": 50.0, "b": 0.0}, min_devices=2) == {"a", "b"}


def test_declining_is_no_silence() -> None:
    assert asked({"a": "declined"}, {"a": 0.0}) == {"a"}
