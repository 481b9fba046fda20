"""The agent: joins tasks and does their work, round after round, through restarts of the platform and its own.

    agent = Agent.register(url, token, name="kitchen-phone", home="kitchen", model=module, data=dataset)
    agent.join("digits")
    agent.run()

Before an update is sent it is stored, so a device that is killed sends the same bytes when it comes back. Whatever the
platform does meanwhile (restart, drain, answer late), the agent asks again with back-off and jitter.
"""

from __future__ import annotations

import fcntl
import json
import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.numpy import save as save_tensors

from coterie.cache import BlobCache
from coterie.client import Platform
from coterie.errors import (
    BadHome,
    CoterieError,
    Declined,
    Fault,
    InvalidRequest,
    Refused,
    RoundOver,
    TooLarge,
    WrongModel,
)
from coterie.heartbeat import Heartbeat
from coterie.home import DeviceHome, DeviceIdentity, Prepared
from coterie.mail import Mail
from coterie.privacy.ledger import LedgerError, Limit
from coterie.privacy.stream import FreshStream, Stream
from coterie.procedures import Procedure, consent, procedure_for
from coterie.procedures.context import RoundContext, round_seed
from coterie.records import TaskSpecification, Work, WorkItem
from coterie.registration import register_device
from coterie.transport import Backoff, Interrupted, Stop

if TYPE_CHECKING:  # torch is imported only for a device that trains
    import torch

    from coterie.training import Loss, Samples, Trainer

POLL_SECONDS = 20.0
_HASTY_SECONDS = 0.2
_log = logging.getLogger("coterie.agent")


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What became of one round's work: "accepted", "repeated", "late", "declined" or "refused"."""

    task_id: str
    round: int
    outcome: str
    seconds: float
    metrics: dict[str, float]
    note: str = ""


@dataclass(slots=True)
class RunSummary:
    """What an agent did: how each task ended ("interrupted" when the agent was stopped first), and its rounds."""

    tasks: dict[str, str] = field(default_factory=dict)
    rounds: list[RoundResult] = field(default_factory=list)

    @property
    def interrupted(self) -> bool:
        """Whether the agent was stopped before its tasks ended."""
        return "interrupted" in self.tasks.values()

    def __str__(self) -> str:
        done = sum(result.outcome in ("accepted", "repeated") for result in self.rounds)
        states = ", ".join(f"{task} {state}" for task, state in self.tasks.items())
        return f"{done} of {len(self.rounds)} rounds delivered; {states or 'no task'}"


class Agent:
    """One device's agent."""

    def __init__(
        self,
        home: Path | str,
        model: torch.nn.Module | None = None,
        data: Samples | None = None,
        *,
        test_data: Samples | None = None,
        loss: Loss | None = None,
        samples: int = 1,
        limit: Limit | None = None,
        cache: BlobCache | None = None,
        seed: int | None = None,
        simulated_noise: Callable[[], Stream] | None = None,
        choose: Callable[[WorkItem], Procedure] = procedure_for,
        on_round: Callable[[RoundResult], None] | None = None,
        heartbeat_seconds: float = 15.0,
        poll_seconds: float = POLL_SECONDS,
        verify: bool | str = True,
    ) -> None:
        """An agent of a device that has registered.

        Args:
            home: the device's folder, as given to `register`.
            model: module whose floating-point state fits the task's model; None for a device that trains nothing.
            data: training samples: a dataset or loader of (input, target) pairs, or two tensors.
            test_data: samples for metrics; the training samples when left out.
            loss: mean loss of (outputs, targets); cross entropy when left out.
            samples: how many samples a device without a model speaks for.
            limit: privacy the owner allows in all; left out, the one stored in the ledger.
            cache: where models are kept; shared by agents of a process when given to each.
            seed: of the training order; left out, the task's.
            simulated_noise: makes streams of noise that can be drawn again, for simulations: they hide nothing.
            choose: picks the procedure for a work item.
            on_round: called after each round.
            heartbeat_seconds: between heartbeats.
            poll_seconds: how long one question for work waits for an answer, 0 to 30.
            verify: TLS verification as in httpx: True, False or a file of CA certificates.
        """
        self.home = DeviceHome(Path(home))
        identity = self.home.identity()
        if identity is None:
            raise BadHome(f"{self.home.folder} holds no registered device; use Agent.register with a token first")
        self.identity: DeviceIdentity = identity
        self.trainer = _trainer(model, data, test_data, loss)
        self.samples = samples if self.trainer is None else self.trainer.samples
        self._keys, self._ledger = self.home.keys(), self.home.ledger(limit)
        self._stop = Stop()
        self._verify, self._seed, self._choose = verify, seed, choose
        self._noise: Callable[[], Stream] = FreshStream if simulated_noise is None else simulated_noise
        self._on_round, self._heartbeat_seconds, self._poll_seconds = on_round, heartbeat_seconds, poll_seconds
        self.platform = Platform(
            identity.url,
            identity.api_key,
            cache=cache,
            backoff=Backoff(patience_seconds=float("inf")),
            stop=self._stop,
            verify=verify,
        )
        self._tasks: dict[str, TaskSpecification] = {}

    @classmethod
    def register(
        cls,
        url: str,
        token: str = "",
        *,
        name: str = "",
        home: Path | str,
        model: torch.nn.Module | None = None,
        data: Samples | None = None,
        profile: dict[str, Any] | None = None,
        kind: str = "",
        **options: Any,
    ) -> Agent:
        """Registers the device with an enrolment token, or resumes it without one when `home` knows it already.

        `profile` may hold brand, model, location and capabilities; `options` are those of `Agent`.
        """
        details = {"kind": kind, **(profile or {})}
        verify = options.get("verify", True)
        register_device(DeviceHome(Path(home)), url, token, name=name, profile=details, verify=verify)
        return cls(home, model, data, **options)

    # --- joining -----------------------------------------------------------------------------------------------------

    def join(self, task: str, *, non_iid: float = 0.0) -> str:
        """Enrols in a task by id or name; returns its id. Safe to repeat."""
        found = self.platform.find_task(task)
        self.platform.enrol(found.id, self.identity.id, samples=self.samples, non_iid=non_iid)
        self._tasks[found.id] = found.specification
        said = consent.in_words(found.specification.privacy, self._ledger)
        if said:
            _log.warning("%s joins %s: %s", self.identity.name, found.specification.name, said)
        return found.id

    def stop(self) -> None:
        """Asks a running agent to stop, from another thread; it does so within one poll."""
        self._stop.set()

    def close(self) -> None:
        """Gives connections back; `run` does so by itself."""
        self.platform.close()

    # --- running -----------------------------------------------------------------------------------------------------

    def run(self) -> RunSummary:
        """Does the work of all joined tasks until they have ended, or until Ctrl-C."""
        if not self._tasks:
            raise CoterieError("this agent has joined no task; call join with a task's id or name first")
        summary = RunSummary()
        try:
            with self._only_one(), self._heartbeat():
                self._work_until_ended(summary)
        except (KeyboardInterrupt, Interrupted):
            self._stop.set()
            summary.tasks |= dict.fromkeys(self._tasks.keys() - summary.tasks.keys(), "interrupted")
            _log.info("%s stops; it goes on where it was when started again", self.identity.name)
        finally:
            self.platform.close()
        return summary

    def _work_until_ended(self, summary: RunSummary) -> None:
        self._last: tuple[str, int, int] | None = None
        pauses = Backoff().pauses()
        while len(summary.tasks) < len(self._tasks):
            try:
                self._work_once(summary)
                pauses = Backoff().pauses()
            except Fault as error:
                # The platform's own mistake; what was prepared is stored, so nothing is lost by asking again.
                _log.warning("%s: the platform failed (request %s); asking again", self.identity.name, error.request_id)
                self._stop.sleep(next(pauses))

    def _work_once(self, summary: RunSummary) -> None:
        open_tasks = [task for task in self._tasks if task not in summary.tasks]
        began = time.monotonic()
        work = self.platform.work(tasks=open_tasks, wait_seconds=self._poll_seconds)
        summary.tasks |= {task: state for task, state in work.ended.items() if task in self._tasks}
        for item in work.items:
            place = (item.task_id, item.round, item.attempt)
            if place == self._last:
                # The platform has not noticed yet what we told it; do not hammer it.
                self._stop.sleep(_HASTY_SECONDS * (1.0 + random.random()))
            self._last = place
            summary.rounds.append(self._do(item))
        self._pace(work, time.monotonic() - began)

    def _pace(self, work: Work, took_seconds: float) -> None:
        """Waits as long as the platform asks; an empty answer that came at once is not followed by another."""
        pause = work.retry_after_seconds * (1.0 + 0.2 * random.random())
        if not work.items and not work.ended and took_seconds < _HASTY_SECONDS:
            pause = max(pause, _HASTY_SECONDS)
        if not work.items and pause > 0.0:
            self._stop.sleep(pause)

    def _do(self, work: WorkItem) -> RoundResult:
        began = time.monotonic()
        metrics: dict[str, float] = {}
        try:
            prepared = self._prepared(work)
            metrics = json.loads(prepared.report)["metrics"]
            outcome, note = self._deliver(prepared)
        except LedgerError as error:
            outcome, note = "declined", str(error)
            self._decline(work, "the device's privacy ledger cannot be used")  # its words may hold what was spent
        except (Declined, WrongModel) as error:
            outcome, note = "declined", _for_the_owner(error)
            self._decline(work, str(error))
        except RoundOver as error:
            # The round ended or was planned anew while this device worked; it asks for work again.
            outcome, note = "late", str(error)
        except (CoterieError, Interrupted, KeyboardInterrupt):
            raise
        except Exception as error:
            self._decline(work, f"training failed: {type(error).__name__}: {error}")
            raise
        self.home.outbox.forget_before(work.task_id, work.round)
        result = RoundResult(work.task_id, work.round, outcome, time.monotonic() - began, metrics, note)
        _log.info("%s round %d: %s %s", self.identity.name, work.round, outcome, note)
        if self._on_round is not None:
            self._on_round(result)
        return result

    def _prepared(self, work: WorkItem) -> Prepared:
        """The update of a round: as it was prepared before a crash, or made now."""
        found = self.home.outbox.find(work.task_id, work.round, work.basis)
        if found is not None:
            return found
        delivery = self._choose(work).prepare(self._context(work))
        body = None if delivery.tensors is None else save_tensors(dict(delivery.tensors))
        return self.home.outbox.put(work.task_id, work.round, work.basis, delivery.report(), body)

    def _context(self, work: WorkItem) -> RoundContext:
        specification = self._tasks[work.task_id]
        seed = specification.seed if self._seed is None else self._seed
        return RoundContext(
            work,
            self.identity.id,
            self._keys,
            self.trainer,
            self.samples,
            Mail(self.platform, work, self.identity.id, self._keys, self.home.outbox),
            self._ledger,
            self.home.private_settings(),
            self.home.memory(work.task_id),
            self.home.outbox,
            self.platform.download_model,
            round_seed(seed, specification.name, work.round, self.identity.name),
            self._noise,
            lambda: self._stop.is_set,
            self.home.save_private_settings,
            specification.privacy,
        )

    def _deliver(self, prepared: Prepared) -> tuple[str, str]:
        try:
            answer = self.platform.put_update(
                prepared.task_id, prepared.round, self.identity.id, report=prepared.report, body=prepared.body
            )
            return answer.outcome, ""
        except (InvalidRequest, TooLarge) as error:
            # Sent again it would be refused again; the others need not wait for it.
            self._decline_round(prepared.task_id, prepared.round, f"its update was refused: {error}")
            return "refused", str(error)
        except RoundOver as error:
            return "late", str(error)
        except Refused as error:
            if error.reason != "already_delivered":
                raise
            return "repeated", str(error)

    def _decline(self, work: WorkItem, why: str) -> None:
        self._decline_round(work.task_id, work.round, why)

    def _decline_round(self, task_id: str, round: int, why: str) -> None:
        try:
            self.platform.decline(task_id, round, why)
        except RoundOver:
            _log.info("%s: round %d was over before it was declined", self.identity.name, round)

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(
            self.identity.url,
            self.identity.api_key,
            self.identity.id,
            seconds=self._heartbeat_seconds,
            verify=self._verify,
        )

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        """One running agent per device: two would release twice what is charged once."""
        with (self.home.folder / "running.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise BadHome(f"{self.home.folder} is in use by another running agent; stop it first") from error
            yield


def _for_the_owner(error: CoterieError) -> str:
    """Why a round was declined, with the figures that the platform is not told."""
    return f"{error}: {error.__cause__}" if isinstance(error.__cause__, LedgerError) else str(error)


def _trainer(
    model: torch.nn.Module | None, data: Samples | None, test_data: Samples | None, loss: Loss | None
) -> Trainer | None:
    if model is None or data is None:
        return None
    from coterie.training import Trainer

    return Trainer(model, data, test_data=test_data, loss=loss)
