"""Tasks: created, joined, started, cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from coterie.parameters.pricing import CorrelatedParameters
from coterie.parameters.topology import ClusterParameters
from coterie.records.enums import EnrolmentState, EventKind, TaskState
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from coterie_api.topology.v1 import topology_pb2 as topology
from coterie_api.trust.v1 import trust_pb2 as trust
from services.aggregation import strategies
from services.aggregation.domain import directions
from services.aggregation.domain.records import Enrolment, Event, Model, Task, TaskView
from services.aggregation.domain.rules.choice import choose
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.errors import BadTask, NotEnrolled, NotYourTask, TaskExists, TooFewClerks, WrongTaskState
from services.aggregation.rounds.conductor import Conductor
from services.aggregation.rounds.ending import end_task
from services.aggregation.store import models, tasks
from services.aggregation.store.model_files import ModelFiles
from services.aggregation.usecases import visibility
from services.kit.database.engine import Database
from services.kit.database.rows import Tx, batches
from services.kit.notify.notifier import Notifier
from services.kit.rpc.paging import Page
from services.kit.rpc.parameters import canonical_text, from_struct, struct_of
from services.kit.rpc.principal import SERVICE, acting_as, current_principal, require_device, require_role
from services.kit.rpc.service_clients import ServiceClients
from services.kit.runtime.clock import Clock
from services.kit.runtime.ids import new_id

MAX_SAMPLES = 1_000_000_000


class TaskUseCases:
    """What may be asked about tasks."""

    def __init__(
        self,
        database: Database,
        clients: ServiceClients,
        conductor: Conductor,
        model_files: ModelFiles,
        notifier: Notifier,
        clock: Clock,
    ) -> None:
        self._database, self._clients, self._conductor = database, clients, conductor
        self._model_files, self._notifier, self._clock = model_files, notifier, clock

    async def create(self, specification: TaskSpecification) -> TaskView:
        """Stores a new task; the same specification again returns the task that exists."""
        caller = require_role("publisher", "admin")
        spec = strategies.complete(specification)
        await self._check_known(spec)
        spec = await self._with_defaults(spec)
        await self._check_start(spec)
        sizes = [await self._check_model(digest, spec) for digest in spec.model_digests]
        elements = [
            (await asyncio.to_thread(self._model_files.layout, *m)).elements
            for m in zip(spec.model_digests, sizes, strict=True)
        ]
        strategies.check_grid(spec, max(elements, default=1))
        now = self._clock.now()
        task = Task(new_id("tsk"), caller.subject, spec, TaskState.CREATED, "", 0, now, 0.0, 0.0, False, 0)
        async with self._database.writing() as tx:
            existing = await tasks.find_task_named(tx, caller.subject, spec.name)
            if existing is None:
                await tasks.add_task(tx, task)
                versions = zip(spec.model_digests, sizes, strict=True)
                await models.add_models(
                    tx, [Model(task.id, line, 0, digest, size, now) for line, (digest, size) in enumerate(versions)]
                )
                await tasks.add_events(tx, Event(task.id, now, EventKind.TASK_CREATED, f"task {spec.name!r} created"))
        if existing is not None and existing.specification != spec:
            raise TaskExists(f"you have another task named {spec.name!r}; choose another name")
        return await self.get(task.id if existing is None else existing.id)

    async def _check_known(self, spec: TaskSpecification) -> None:
        """Require that devices named in parameters are registered: others would silently have no effect."""
        sold = CorrelatedParameters.of(spec.parameters)
        named = {
            "rule.known": choose(spec.rule, spec.parameters_json).known,
            "pricing.known": sold.known,
            "pricing.alike": [device for group in sold.alike for device in group.devices],
        }
        asked = sorted({device for devices in named.values() for device in devices})
        there: set[str] = set()
        for some in batches(asked, 10_000):
            result = await self._clients.registry.GetDevices(trust.GetDevicesRequest(device_ids=some))
            there |= {device.id for device in result.devices}
        for place, devices in named.items():
            missing = sorted(set(devices) - there)
            if missing:
                raise BadTask(
                    f"parameters.{place}: no device {', '.join(missing)[:200]} is registered; "
                    "give ids of registered devices (coterie device list)"
                )

    async def _check_start(self, spec: TaskSpecification) -> None:
        """Refuses to begin with the plan of a task that the caller may not look into, or of another topology."""
        start_from = ClusterParameters.of(spec.parameters).start_from
        if not start_from:
            return
        async with self._database.reading() as tx:
            earlier = (await visibility.see_inside(tx, start_from)).specification
        if earlier.topology != spec.topology:
            raise BadTask(
                f"parameters.topology.start_from: task {start_from} has topology {earlier.topology}, not "
                f"{spec.topology}; name a task of the same topology, or leave it out"
            )

    async def _with_defaults(self, spec: TaskSpecification) -> TaskSpecification:
        """The specification with every default of topology and pricing in its parameters; each refuses what is its."""
        planned = await self._clients.topology.CheckParameters(
            topology.CheckParametersRequest(
                topology=spec.topology, privacy=spec.privacy, parameters=struct_of(spec.parameters_json)
            )
        )
        priced = await self._clients.pricing.CheckParameters(
            pricing.CheckParametersRequest(
                incentive=spec.incentive,
                parameters=planned.parameters,
                escrow_microcredits=spec.escrow_microcredits,
                rounds=spec.rounds,
            )
        )
        return replace(spec, parameters_json=canonical_text(from_struct(priced.parameters)))

    async def _check_model(self, digest: str, spec: TaskSpecification) -> int:
        """Size of a registered model, whose layout must be sound and fit what the task promises."""
        caller = current_principal()
        async with self._database.reading() as tx:
            # To begin with a model is to be able to read it: a publisher names its own, never another's by its digest.
            size = await models.find_size(tx, digest, of=caller.subject if caller.role == "publisher" else "")
        if size is None:
            raise BadTask(f"you have registered no model {digest[:16]}…; upload it first (POST /v1/models)")
        layout = await asyncio.to_thread(self._model_files.layout, digest, size)
        strategies.strategy_for(spec).task_check.require_model(layout)
        return size

    async def get(self, task_id: str) -> TaskView:
        """One task."""
        async with self._database.reading() as tx:
            return (await self._views(tx, [await visibility.see_task(tx, task_id)]))[0]

    async def list_tasks(self, page: Page, *, state: TaskState, publisher: str, name: str = "") -> list[TaskView]:
        """Tasks the caller may see, newest first."""
        scope = visibility.scope()
        if scope.publisher and publisher not in ("", scope.publisher):
            raise NotYourTask(f"{publisher} is another publisher; leave publisher out to list your own tasks")
        async with self._database.reading() as tx:
            result = await tasks.list_tasks(
                tx, page, state=state, publisher=publisher or scope.publisher, name=name, joinable=scope.joinable
            )
            return await self._views(tx, result)

    async def _views(self, tx: Tx, listed: list[Task]) -> list[TaskView]:
        """Return the tasks with their counts: four queries for any number of tasks."""
        ids = [task.id for task in listed]
        enrolled = await tasks.count_enrolled(tx, ids)
        newest = await models.latest_models_of(tx, ids)
        events = await tasks.last_events(tx, ids)
        reported_directions = await tasks.directions_said(tx, ids)
        return [
            TaskView(
                visibility.visible_task(task),
                enrolled.get(task.id, 0),
                tuple(model.digest for model in newest.get(task.id, ())),
                events.get(task.id, 0),
                directions.chosen(reported_directions.get(task.id, {}), task.specification.stop),
            )
            for task in listed
        ]

    async def start(self, task_id: str) -> TaskView:
        """Starts a task; starting a running one changes nothing."""
        require_role("publisher", "admin")
        view = await self.get(task_id)
        if view.task.state is TaskState.RUNNING:
            return view
        if view.task.state is not TaskState.CREATED:
            raise WrongTaskState(f"task {task_id} is {view.task.state}; only a created task can start")
        if view.enrolled < view.task.specification.min_devices:
            raise WrongTaskState(
                f"{view.enrolled} devices are enrolled, {view.task.specification.min_devices} are needed to start"
            )
        await self._check_owners(view.task)
        await self._begin(view.task)
        return await self.get(task_id)

    async def _check_owners(self, task: Task) -> None:
        """Refuses to start secure sums that could have no committee."""
        missing = await self._missing_owners(task)
        if missing > 0:
            clerks = (
                strategies.strategy_for(task.specification).secure_sums.committee(task.specification.min_devices).clerks
            )
            raise TooFewClerks(
                f"secure sums need {clerks} clerks of different owners, the enrolled devices that may be clerks have "
                f"{clerks - missing} owners; enrol devices of more owners, or create the task with fewer clerks"
            )

    async def _missing_owners(self, task: Task) -> int:
        """Owners that a committee still lacks; 0 or less where there are enough, or none is needed."""
        rules = strategies.strategy_for(task.specification).secure_sums.committee(task.specification.min_devices)
        if not rules.secure:
            return 0
        async with self._database.reading() as tx:
            enrolled = await tasks.list_enrolments(tx, task.id, state=EnrolmentState.ACTIVE)
        owners: set[str] = set()
        for some in batches([item for item in enrolled if not item.no_clerk], 10_000):
            request = trust.GetDevicesRequest(device_ids=[item.device_id for item in some])
            with acting_as(SERVICE):  # the last device to enrol may be the one that starts the task
                owners |= {device.owner_id for device in (await self._clients.registry.GetDevices(request)).devices}
        return rules.clerks - len(owners)

    async def _begin(self, task: Task) -> None:
        """Open the escrow and set the task running; both are idempotent."""
        with acting_as(SERVICE):  # the last device to enrol may be the one that starts the task
            await self._clients.ledger.OpenEscrow(
                pricing.OpenEscrowRequest(
                    task_id=task.id,
                    publisher=task.publisher,
                    amount_microcredits=task.specification.escrow_microcredits,
                )
            )
        now = self._clock.now()
        async with self._database.writing() as tx:
            fresh = await tasks.find_task(tx, task.id, lock=True)
            if fresh is not None and fresh.state is TaskState.CREATED:
                await tasks.change_task(tx, task.id, state=TaskState.RUNNING, started_at=now)
                await tasks.add_events(tx, Event(task.id, now, EventKind.TASK_STARTED, "the task has started"))
        self._conductor.take_up(task.id)

    async def cancel(self, task_id: str, why: str) -> TaskView:
        """Cancels a task; cancelling an ended one changes nothing."""
        require_role("publisher", "admin")
        view = await self.get(task_id)
        if not view.task.ended:
            async with self._database.writing() as tx:
                reason = why or "cancelled by its publisher"
                await end_task(tx, task_id, TaskState.CANCELLED, reason, self._clock.now())
            self._conductor.take_up(task_id)
            self._notifier.notify(f"events:{task_id}")
        return await self.get(task_id)

    # --- enrolments --------------------------------------------------------------------------------------------------

    async def enrol(
        self,
        task_id: str,
        device_id: str,
        samples: int,
        non_iid: float,
        clerks: Sequence[str] = (),
        no_clerk: bool = False,
        *,
        measures: bool = False,
        better: Mapping[str, str] | None = None,
    ) -> Enrolment:
        """Enrol a device that may join; enrolling again updates its enrolment."""
        caller = require_device(device_id)
        if not 1 <= samples <= MAX_SAMPLES:
            raise BadTask(f"samples must be from 1 to {MAX_SAMPLES}, not {samples}")
        if not 0.0 <= non_iid <= 1e6:
            raise BadTask(f"non_iid must be a finite number of at least 0, not {non_iid}")
        now = self._clock.now()
        owner_id = caller.owner_id if caller.role == "device" else await self._owner_of(device_id)
        async with self._database.writing() as tx:
            # Locked, so that of two devices enrolling at once the second counts the first.
            task = await visibility.see_task(tx, task_id, lock=True)
            visibility.require_invitation(task, device_id, owner_id)
            if task.ended:
                raise WrongTaskState(f"task {task_id} is {task.state}; it takes no more devices")
            taken = sorted(set(clerks))
            enrolment = Enrolment(
                task_id,
                device_id,
                EnrolmentState.ACTIVE,
                samples,
                non_iid,
                now,
                taken,
                no_clerk,
                measures,
                directions.text_of(better or {}),
                owner_id,
            )
            await tasks.put_enrolment(tx, enrolment)
            enrolled = (await tasks.count_enrolled(tx, [task_id])).get(task_id, 0)
            spec = task.specification
            joins_at_once = task.state is TaskState.RUNNING and spec.buffering is not None
            if joins_at_once:
                await tasks.change_task(tx, task_id)  # whichever replica conducts it gives the device work
        if joins_at_once:
            self._conductor.take_up(task_id)
        is_due = task.state is TaskState.CREATED and spec.auto_start and enrolled >= spec.min_devices
        if is_due and await self._missing_owners(task) <= 0:  # else it waits for devices of more owners
            await self._begin(task)
        return enrolment

    async def _owner_of(self, device_id: str) -> str:
        """Return the owner of a device that another principal enrols."""
        with acting_as(SERVICE):
            reply = await self._clients.registry.GetDevices(trust.GetDevicesRequest(device_ids=[device_id]))
        return next((device.owner_id for device in reply.devices), "")

    async def withdraw(self, task_id: str, device_id: str) -> Enrolment:
        """Withdraws a device: it takes part in no further round."""
        require_device(device_id)
        async with self._database.writing() as tx:
            enrolment = await tasks.find_enrolment(tx, task_id, device_id)
            if enrolment is None:
                raise NotEnrolled(f"device {device_id} is not enrolled in {task_id}")
            withdrawn = replace(enrolment, state=EnrolmentState.WITHDRAWN)
            await tasks.put_enrolment(tx, withdrawn)
        return withdrawn

    async def list_enrolments(self, task_id: str, page: Page) -> list[Enrolment]:
        """Enrolments of a task by device id."""
        require_role("publisher", "admin")
        async with self._database.reading() as tx:
            await visibility.see_inside(tx, task_id)
            return await tasks.list_enrolments(tx, task_id, page)
