"""Rules on bad days: kill -9 between and in rounds leaves robust rules and optimisers with the same bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.device_group import DeviceGroup, Pause
from tests.e2e.real_platform import RealPlatform, real_platform


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPlatform]:
    with real_platform(tmp_path_factory.mktemp("rules")) as result:
        yield result


@pytest.fixture(scope="module")
def device_group(platform: RealPlatform) -> DeviceGroup:
    return DeviceGroup(platform)


@pytest.mark.parametrize(
    ("rule", "parameters"),
    [("fedadam", {"learning_rate": 0.05}), ("nnm+geometric-median+fedavgm", {"f": 1, "momentum": 0.5})],
)
def test_the_server_killed_in_two_rounds_moves_the_model_by_the_same_bytes(
    platform: RealPlatform, device_group: DeviceGroup, rule: str, parameters: dict[str, float]
) -> None:
    """The last step needs what the optimiser remembered of both rounds in which the server died."""
    finals = []
    for killed_in in ((), (1, 2)):
        task = device_group.publish(rule=rule, parameters={"rule": parameters})
        pauses = [Pause("eve", number) for number in killed_in]
        shift = device_group.start(task, pause=_Pauses(pauses))
        for pause in pauses:
            shift.until(pause)
            platform.kill("aggregation")
            pause.go_on.set()
            platform.restart("aggregation")
        shift.wait()
        finals.append(platform.final_model(task))
        assert platform.admin.task(task).specification.rule == rule
        rounds = platform.admin.rounds(task)
        assert [(r.number, r.state, r.delivered) for r in rounds] == [(n, "done", 3) for n in (1, 2, 3)]
        messages = [event.message for event in platform.admin.events(task) if event.kind == "round.combined"]
        assert messages == ([f"{rule} used 3 of 3 updates"] * 3 if "+" in rule else [])
    assert finals[0] == finals[1]


def test_a_liar_is_set_aside_with_the_reason_where_its_owner_looks(
    platform: RealPlatform, device_group: DeviceGroup
) -> None:
    task = device_group.publish(rule="krum", parameters={"rule": {"f": 1}}, rounds=1)
    device_group.start(task).wait()
    parts = platform.admin.round(task, 1).participations
    notes = [part.excluded_because for part in parts if part.excluded_because]
    assert len(notes) == 2
    assert all(note.startswith("its mean squared distance to the nearest others is") for note in notes)
    assert [part.state for part in parts] == ["delivered"] * 3
    messages = [event.message for event in platform.admin.events(task) if event.kind == "round.combined"]
    assert len(messages) == 1
    assert messages[0].startswith("krum used 1 of 3 updates; set aside: dev_")
    names = {device.id: device.name for device in platform.admin.devices()}
    for part in parts:
        with platform.as_device(device_group.homes[names[part.device_id]]) as device:
            (own,) = device.participations(task, part.device_id)
        assert (own.excluded_because, own.metrics["update_distance"]) == (
            part.excluded_because,
            part.metrics["update_distance"],
        )


class _Pauses(Pause):
    """Several places to wait at."""

    def __init__(self, pauses: list[Pause]) -> None:
        super().__init__()
        self._pauses = pauses

    def here(self, device: str, round: int) -> None:
        for pause in self._pauses:
            pause.here(device, round)
