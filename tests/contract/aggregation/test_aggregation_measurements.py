"""Figures belong to the model version they measured, the last one included; tasks stop at a target."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2
from coterie_api.topology.v1.topology_pb2_grpc import TopologyStub
from services.kit.errors import Conflict, InvalidInput, NotFound, PermissionDenied, Unprocessable
from services.kit.rpc.channels import open_channel
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.conftest import Client, ServiceFixture, eventually

PUBLISHER = Principal("publisher", "pub_1")


async def join(client: Client, task_id: str, device: str, *, samples: int = 10, measures: bool = True) -> None:
    set_principal(Principal("device", device))
    request = pb.EnrolRequest(task_id=task_id, device_id=device, samples=samples, measures=measures)
    assert (await client.tasks.Enrol(request)).measures == measures


async def tell(
    client: Client, caller: Principal, task_id: str, version: int, public: bool = False, **figures: float
) -> None:
    set_principal(caller)
    request = pb.ReportMeasurementRequest(task_id=task_id, version=version, metrics=figures, public_metrics=public)
    await client.tasks.ReportMeasurement(request)


async def versions(client: Client, task_id: str) -> dict[int, pb.Model]:
    set_principal(PUBLISHER)
    reply = await client.tasks.ListModels(pb.ListModelsRequest(task_id=task_id))
    return {model.version: model for model in reply.models}


async def measured(client: Client, caller: Principal, task_id: str, version: int) -> dict[str, pb.Measurement]:
    set_principal(caller)
    reply = await client.tasks.ListMeasurements(pb.ListMeasurementsRequest(task_id=task_id, version=version))
    return {measurement.device_id: measurement for measurement in reply.measurements}


async def play(client: Client, device: str, accuracy: float, samples: float) -> pb.WorkItem:
    item = await client.get_work(device)
    await client.deliver(item, device, [1.0, 0.0, 0.0], metrics={"accuracy": accuracy, "samples": samples})
    return item


async def test_each_version_has_its_own_figures_the_last_one_too(service: ServiceFixture) -> None:
    """Version 0 measures (0.1·100 + 0.5·300)/400 = 0.4, version 1 0.6; version 2 is measured without an update."""
    client = await service.start()
    task = await client.create([])
    await join(client, task.id, "dev_a")
    await join(client, task.id, "dev_b")
    await client.start_task(task.id)
    for a, b in ((0.1, 0.5), (0.3, 0.7)):
        await play(client, "dev_a", a, 100)
        await play(client, "dev_b", b, 300)
    for device, accuracy, samples in (("dev_a", 0.5, 100.0), ("dev_b", 0.9, 300.0)):
        item = await client.get_work(device)
        assert (item.measure, item.HasField("measure"), item.round) == (2, True, 3)
        await tell(client, Principal("device", device), task.id, 2, accuracy=accuracy, samples=samples)
    ended = await client.finished(task.id)
    assert (ended.state, ended.reason) == (words.TASK_STATE_FINISHED, "all 2 rounds are done")
    result = await versions(client, task.id)
    assert {v: dict(m.metrics) for v, m in result.items()} == {
        0: {"accuracy": pytest.approx(0.4)},
        1: {"accuracy": pytest.approx(0.6)},
        2: {"accuracy": pytest.approx(0.8)},
    }
    assert {(m.devices, m.samples) for m in result.values()} == {(2, 400.0)}
    own = await measured(client, PUBLISHER, task.id, 2)
    assert {device: dict(entry.metrics) for device, entry in own.items()} == {
        "dev_a": {"accuracy": 0.5},
        "dev_b": {"accuracy": 0.9},
    }
    assert set(await measured(client, Principal("device", "dev_a"), task.id, 2)) == {"dev_a"}


async def test_a_device_that_does_not_measure_is_not_waited_for(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(["dev_a"], rounds=1)
    await client.start_task(task.id)
    await play(client, "dev_a", 0.1, 100)
    assert (await client.finished(task.id)).state == words.TASK_STATE_FINISHED
    result = await versions(client, task.id)
    assert dict(result[0].metrics) == {"accuracy": 0.1}
    assert (dict(result[1].metrics), result[1].devices) == ({}, 0)


async def test_platform_killed_before_last_evaluation_requests_it_again(
    service: ServiceFixture,
) -> None:
    client = await service.start()
    task = await client.create([], rounds=1)
    await join(client, task.id, "dev_a")
    await client.start_task(task.id)
    await play(client, "dev_a", 0.1, 100)
    assert (await client.get_work("dev_a")).measure == 1
    await service.apps[0].stop()
    again = await service.start()
    assert (await again.get_work("dev_a", wait=10.0)).measure == 1
    await tell(again, Principal("device", "dev_a"), task.id, 1, accuracy=0.7)
    await again.finished(task.id)
    assert dict((await versions(again, task.id))[1].metrics) == {"accuracy": 0.7}


async def test_a_task_stops_at_its_target_and_keeps_the_best_version(service: ServiceFixture) -> None:
    """Version 1 reaches 0.8; the round that made version 2 had begun, so the task ends after two rounds of nine."""
    client = await service.start()
    task = await client.create(["dev_a"], rounds=9, stop=pb.Stop(metric="accuracy", at=0.8))
    assert (task.specification.stop.better, task.HasField("best_version")) == ("up", False)
    await client.start_task(task.id)
    await play(client, "dev_a", 0.1, 100)
    await play(client, "dev_a", 0.85, 100)
    ended = await client.finished(task.id)
    assert ended.state == words.TASK_STATE_FINISHED
    assert ended.reason == ("accuracy reached 0.85 in version 1, the target was at least 0.8; 2 of 9 rounds are done")
    assert (ended.round, ended.best_version) == (2, 1)


async def test_a_task_tells_which_way_figures_get_better_as_most_devices_say(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create([], rounds=1)

    async def enrol(device: str, better: dict[str, str]) -> None:
        set_principal(Principal("device", device))
        request = pb.EnrolRequest(task_id=task.id, device_id=device, samples=10, measures=True, better=better)
        await client.tasks.Enrol(request)

    await enrol("dev_a", {"distance": "down"})
    await enrol("dev_b", {"distance": "down"})
    await enrol("dev_c", {})
    set_principal(PUBLISHER)
    assert dict((await client.tasks.GetTask(pb.GetTaskRequest(task_id=task.id))).better) == {"distance": "down"}
    with pytest.raises(InvalidInput, match="sideways"):
        await enrol("dev_a", {"distance": "sideways"})


async def test_a_publisher_s_own_figures_decide_where_it_tells_them(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(["dev_a"], rounds=9, stop=pb.Stop(metric="accuracy", patience=1))
    await client.start_task(task.id)
    item = await play(client, "dev_a", 0.99, 100)
    assert item.round == 1
    await client.get_work("dev_a")
    await tell(client, PUBLISHER, task.id, 0, accuracy=0.6)
    await tell(client, PUBLISHER, task.id, 1, accuracy=0.5)
    await play(client, "dev_a", 0.99, 100)
    ended = await client.finished(task.id)
    assert "was not better than 0.6 of version 0 in 1 versions after it" in ended.reason
    assert ended.best_version == 0
    assert dict((await versions(client, task.id))[1].evaluated) == {"accuracy": 0.5}


async def test_where_devices_are_drawn_by_lot_all_measure_and_mean_does_not_jump(service: ServiceFixture) -> None:
    """One of two devices trains in each round; both measure every version, so the mean is of both."""
    client = await service.start()
    task = await client.create([], rounds=2, fraction=0.5)
    accuracy = {"dev_a": 0.2, "dev_b": 0.8}
    for device in accuracy:
        await join(client, task.id, device)
    await client.start_task(task.id)
    for version in range(2):
        items = {device: await client.get_work(device) for device in accuracy}
        (busy,) = [device for device, item in items.items() if not item.HasField("measure")]
        (idle,) = accuracy.keys() - {busy}
        assert items[idle].measure == version
        await tell(client, Principal("device", idle), task.id, version, accuracy=accuracy[idle])
        await client.deliver(items[busy], busy, [1.0, 0.0, 0.0], metrics={"accuracy": accuracy[busy]})
    for device in accuracy:
        assert (await client.get_work(device)).measure == 2
        await tell(client, Principal("device", device), task.id, 2, accuracy=accuracy[device])
    await client.finished(task.id)
    result = await versions(client, task.id)
    assert [result[v].metrics["accuracy"] for v in range(3)] == pytest.approx([0.5, 0.5, 0.5])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"fraction": 1.5}, "fraction"),
        ({"stop": pb.Stop(metric="accuracy")}, "a target"),
        ({"stop": pb.Stop(metric="loss", at=1.0), "preset": "mesh"}, "mesh"),
    ],
)
async def test_what_makes_no_sense_is_refused(service: ServiceFixture, changes: dict[str, Any], why: str) -> None:
    client = await service.start()
    with pytest.raises(InvalidInput, match=why):
        await client.create([], **changes)


async def test_figures_of_others_versions_and_liars_are_refused(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(["dev_a"], rounds=3)
    await client.start_task(task.id)
    device = Principal("device", "dev_a")
    await play(client, "dev_a", 0.1, 100)
    await client.get_work("dev_a")
    with pytest.raises(NotFound, match="no version 7"):
        await tell(client, device, task.id, 7, accuracy=1.0)
    with pytest.raises(Conflict, match="measured no more"):
        await tell(client, device, task.id, 0, accuracy=1.0)
    with pytest.raises(InvalidInput, match="finite"):
        await tell(client, device, task.id, 1, accuracy=float("nan"))
    with pytest.raises(PermissionDenied):
        await tell(client, Principal("device", "dev_stranger"), task.id, 1, accuracy=1.0)
    with pytest.raises(PermissionDenied):
        await tell(client, Principal("publisher", "pub_2"), task.id, 1, accuracy=1.0)
    await tell(client, device, task.id, 1, accuracy=0.5)
    await tell(client, device, task.id, 1, accuracy=1.0)
    assert dict((await measured(client, device, task.id, 1))["dev_a"].metrics) == {"accuracy": 0.5}


async def test_beside_noise_only_public_figures_are_taken(service: ServiceFixture) -> None:
    client = await service.start()
    from services.kit.rpc.parameters import to_struct

    noise = to_struct({"privacy": {"epsilon": 4.0}})
    task = await client.create(["dev_a"], rounds=3, privacy="uniform", parameters=noise)
    await client.start_task(task.id)
    device = Principal("device", "dev_a")
    await client.get_work("dev_a")
    with pytest.raises(Unprocessable, match="public"):
        await tell(client, device, task.id, 0, accuracy=1.0)
    await tell(client, device, task.id, 0, public=True, accuracy=0.5)
    assert dict((await measured(client, PUBLISHER, task.id, 0))["dev_a"].metrics) == {"accuracy": 0.5}


async def test_finished_tasks_are_listed_as_measured_runs(service: ServiceFixture) -> None:
    """γ up to the default of 1: (0.4 + 1 + 1)/3; figures of the newest version, the evaluator's before the devices'."""
    client = await service.start()
    axes: dict[str, Any] = {
        "preset": "",
        "topology": "star",
        "privacy": "none",
        "incentive": "none",
        "rounds": 2,
    }

    async def run(name: str, metrics_of: dict[str, dict[str, float]]) -> str:
        task = await client.create([], name=name, **axes)
        for device, degree in zip(metrics_of, (0.4, 0.0, 50.0), strict=True):
            set_principal(Principal("device", device))
            request = pb.EnrolRequest(task_id=task.id, device_id=device, samples=10, non_iid=degree)
            await client.tasks.Enrol(request)
        await client.start_task(task.id)
        for _ in range(2):
            for device, metrics in metrics_of.items():
                item = await client.get_work(device)
                await client.deliver(item, device, [1.0, 0.0, 0.0], metrics=metrics)
        assert (await client.finished(task.id)).state == words.TASK_STATE_FINISHED
        return task.id

    async def runs(*task_ids: str) -> list[pb.MeasuredTask]:
        request = pb.ListMeasuredTasksRequest(task_ids=task_ids)
        return list((await client.tasks.ListMeasuredTasks(request)).tasks)

    honest = {"loss": 0.5, "accuracy": 0.75}
    lie = {"loss": 0.0, "accuracy": 1.0, "samples": 1e9}
    agreed = await run("agreed", {"dev_a": honest, "dev_b": honest, "dev_c": lie})
    alone = await run("alone", {"dev_a": {}, "dev_b": {}, "dev_c": lie})
    set_principal(PUBLISHER)
    degree: Any = pytest.approx(0.8)
    (measured,) = await runs(alone, agreed)
    assert (measured.task_id, measured.non_iid, measured.loss, measured.accuracy) == (agreed, degree, 0.5, 75.0)
    await tell(client, PUBLISHER, alone, 1, loss=0.25, accuracy=0.5)
    await tell(client, PUBLISHER, alone, 2, loss=0.125)
    assert [(entry.task_id, entry.non_iid, entry.loss, entry.accuracy) for entry in await runs(alone, agreed)] == [
        (alone, degree, 0.25, 50.0),
        (agreed, degree, 0.5, 75.0),
    ]
    with pytest.raises(InvalidInput, match="name fewer"):
        await runs(*[agreed] * 101)
    for other in (Principal("publisher", "pub_2"), Principal("device", "dev_a")):
        set_principal(other)
        with pytest.raises(PermissionDenied):
            await runs(agreed)


async def test_plans_go_by_what_the_publisher_measured_of_its_earlier_tasks(service: ServiceFixture) -> None:
    """Five tasks of the same model at γ = 1..5: what devices said of them is left aside, and so are others' tasks."""
    client = await service.start()
    axes: dict[str, Any] = {"preset": "", "topology": "clusters", "privacy": "none", "incentive": "none", "rounds": 1}
    for gamma in range(1, 6):
        parameters = to_struct({"topology": {"non_iid": float(gamma)}})
        task = await client.create(["dev_a"], name=f"run {gamma}", parameters=parameters, **axes)
        await client.start_task(task.id)
        item = await client.get_work("dev_a", wait=90.0)
        await client.deliver(item, "dev_a", [1.0, 0.0, 0.0], metrics={"loss": 9.0, "accuracy": 0.0})
        assert (await client.finished(task.id)).state == words.TASK_STATE_FINISHED
        if gamma < 5:
            await tell(client, PUBLISHER, task.id, 1, loss=0.25 + 0.02 / gamma, accuracy=0.85 - 0.0002 / gamma)
    channel = open_channel(service.settings, service.settings.topology_address)
    plans = TopologyStub(channel)

    async def fit_of(name: str) -> topology_pb2.QualityFit:
        parameters = to_struct({"topology": {"quality": "fitted"}})
        task = await client.create(["dev_a", "dev_b"], name=name, parameters=parameters, **axes)
        await client.start_task(task.id)
        result: list[topology_pb2.Plan] = []

        async def is_planned() -> bool:
            set_principal(PUBLISHER)
            with suppress(NotFound):
                result.append(await plans.GetPlan(topology_pb2.GetPlanRequest(task_id=task.id)))
            return bool(result)

        await eventually(is_planned)
        return result[0].cluster_details.fit

    few = await fit_of("four")
    assert (few.fitted, few.runs) == (False, 4)
    assert "at least five runs, not 4" in few.why
    await tell(client, PUBLISHER, task.id, 1, loss=0.254, accuracy=0.84996)
    fit = await fit_of("five")
    assert (fit.fitted, fit.runs, fit.why) == (True, 5, "")
    assert fit.loss_rmse < 0.01
    assert fit.quality_slope == pytest.approx(1.0), "accuracy falls by a point with a unit of loss"
    await channel.close()
