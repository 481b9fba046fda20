"""The device agent: joins tasks and works on their rounds, through restarts of the platform and the device.

    agent = Agent.register(url, token, name="kitchen-phone", home="kitchen", model=module, data=dataset)
    agent.join("digits")
    agent.run()

The agent stores an update before it sends it, so a device that is killed sends the same bytes when it restarts. While
the platform restarts, drains or answers late, the agent retries with back-off and jitter.
"""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from coterie.agent import objections
from coterie.agent.cache import BlobCache
from coterie.agent.committee_worker import Clerking
from coterie.agent.enrolment import Enrolments
from coterie.agent.heartbeat import Heartbeat
from coterie.agent.home import DeviceHome, DeviceIdentity
from coterie.agent.owner_decisions import Owner
from coterie.agent.pairing import Choice
from coterie.agent.registration import register_device
from coterie.agent.results import RoundResult, RunSummary
from coterie.agent.round_runner import RoundRunner
from coterie.client import Platform
from coterie.errors import (
    BadAnswer,
    BadHome,
    CoterieError,
    Declined,
    Fault,
)
from coterie.learning import measurement
from coterie.learning.learner import Guarded, Learner, learner_of
from coterie.privacy.ledger import Limit, Spent
from coterie.privacy.stream import FreshStream, Stream
from coterie.protocol.transport import Backoff, Interrupted, Stop
from coterie.records import Work, WorkItem
from coterie.strategies import Strategy, strategy_for

if TYPE_CHECKING:  # torch is imported only for a device that trains
    import torch

    from coterie.learning.batches import Samples
    from coterie.learning.torch_learner import Loss

POLL_SECONDS = 20.0
_HASTY_SECONDS = 0.2
_LISTEN_SECONDS = 5.0
"""How long a device with linked browsers waits for work before it listens to its owner again."""
_ASK_SECONDS = 2.0
"""Interval of polls for decisions while the device has no work to ask for."""
_log = logging.getLogger("coterie.agent.agent")


class Agent:
    """One device's agent."""

    def __init__(
        self,
        home: Path | str,
        model: torch.nn.Module | None = None,
        data: Samples | None = None,
        *,
        learner: Learner | None = None,
        test_data: Samples | None = None,
        public_test_data: bool = False,
        loss: Loss | None = None,
        samples: int = 1,
        limit: Limit | None = None,
        cache: BlobCache | None = None,
        seed: int | None = None,
        simulated_noise: Callable[[], Stream] | None = None,
        choose: Callable[[WorkItem], Strategy] = strategy_for,
        on_round: Callable[[RoundResult], None] | None = None,
        on_error: Literal["stop", "continue"] = "stop",
        heartbeat_seconds: float = 15.0,
        poll_seconds: float = POLL_SECONDS,
        verify: bool | str = True,
    ) -> None:
        """An agent of a device that has registered.

        Args:
            home: the device's folder, as given to `register`.
            model: module whose floating-point state fits the task's model; None for a device that trains nothing.
            data: training samples: a dataset, list or loader of (input, target) pairs, or two tensors.
            learner: the device's own way to learn, instead of model, data, test_data and loss.
            test_data: samples for metrics; the training samples when left out.
            public_test_data: whether the test samples are public; beside noise, metrics are of public samples only.
            loss: mean loss of (outputs, targets); cross entropy when left out.
            samples: how many samples a device without a model speaks for.
            limit: privacy the owner allows in all; left out, the one stored in the ledger.
            cache: where models are kept; shared by agents of a process when given to each.
            seed: of the training order; left out, the task's.
            simulated_noise: makes streams of noise that can be drawn again, for simulations: they hide nothing.
            choose: picks the strategy for a work item.
            on_round: called after each round; a good place to add data that has arrived.
            on_error: whether the agent stops when its learner's code raises, or goes on with the next round. Either way
                the round is declined in one line, and the traceback is in the log "coterie.agent.agent".
            heartbeat_seconds: between heartbeats.
            poll_seconds: how long one question for work waits for an answer, 0 to 30.
            verify: TLS verification as in httpx: True, False or a file of CA certificates.
        """
        self.home = DeviceHome(Path(home))
        identity = self.home.identity()
        if identity is None:
            raise BadHome(f"{self.home.folder} holds no registered device; use Agent.register with a token first")
        self.identity: DeviceIdentity = identity
        self.learner = learner_of(learner, model, data, test_data, loss)
        self._public_figures = public_test_data and (test_data is not None or learner is not None)
        self._keys, self._ledger = self.home.keys(), self.home.ledger(limit)
        self._stop = Stop()
        self._verify = verify
        _check_options(on_error, poll_seconds, heartbeat_seconds)
        self._on_round, self._heartbeat_seconds, self._poll_seconds = on_round, heartbeat_seconds, poll_seconds
        self.platform = Platform(
            identity.url,
            identity.api_key,
            cache=cache,
            backoff=Backoff(patience_seconds=float("inf")),
            stop=self._stop,
            verify=verify,
        )
        self._owner, self._asks_owner = Owner(self.platform, self.home, identity.id), False
        self._enrolments = Enrolments(
            self.home, identity, self._ledger, self.platform, self.learner, samples, self._public_figures
        )
        self._bench = RoundRunner(
            self.home,
            identity,
            self._keys,
            self._ledger,
            self.platform,
            self._enrolments,
            self.learner,
            self._public_figures,
            choose,
            seed,
            FreshStream if simulated_noise is None else simulated_noise,
            lambda: self._stop.is_set,
            on_error == "continue",
        )
        self._reported: dict[str, int] = {}
        self._clerk: Clerking | None = None

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

        `profile` may hold brand, model, location and capabilities; `options` are those of `Agent`. Learner and options
        are tried before anything is registered: a mistake in them costs no token.
        """
        asked = inspect.signature(cls).bind(home, model, data, **options)
        asked.apply_defaults()
        _check_options(*(asked.arguments[name] for name in ("on_error", "poll_seconds", "heartbeat_seconds")))
        parts = {part: options.pop(part, None) for part in ("learner", "test_data", "loss")}
        learner = learner_of(parts["learner"], model, data, parts["test_data"], parts["loss"])
        if learner is not None:
            Guarded(learner).parameters()
        if options.get("public_test_data") and parts["learner"] is None and parts["test_data"] is None:
            options["public_test_data"] = False  # training samples are private
        details = {"kind": kind, **(profile or {})}
        verify = options.get("verify", True)
        register_device(DeviceHome(Path(home)), url, token, name=name, profile=details, verify=verify)
        return cls(home, learner=learner, **options)

    def spent(self) -> Spent:
        """Privacy spent so far, by the device's own ledger."""
        return self._ledger.spent()

    @property
    def samples(self) -> int:
        """Training samples now."""
        return self._enrolments.samples

    # --- joining -----------------------------------------------------------------------------------------------------

    def join(self, task: str, *, non_iid: float = 0.0, terms: str = "", quietly: bool = False) -> str:
        """Enrols in a task by id or name; returns its id. Safe to repeat. Logs what it costs, unless `quietly`.

        With `terms` (`coterie.agent.pairing.terms_of`) only if the task still is what its owner was shown.
        """
        return self._enrolments.join(task, non_iid=non_iid, terms=terms, quietly=quietly)

    def stop(self) -> None:
        """Asks a running agent to stop, from another thread; it does so within one poll."""
        self._stop.set()

    def close(self) -> None:
        """Gives connections back; `run` does so by itself. The agent may be used again."""
        self.platform.close()

    # --- running -----------------------------------------------------------------------------------------------------

    async def arun(self) -> RunSummary:
        """As `run`, without holding up the event loop; cancelling it stops the agent within one poll."""
        running = asyncio.ensure_future(asyncio.to_thread(self.run))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self.stop()
            await asyncio.gather(running, return_exceptions=True)
            raise

    def run(self, *, ask_owner: bool = False) -> RunSummary:
        """Does the work of all joined tasks until they have ended, or until Ctrl-C; may be called again after that.

        With `ask_owner` it also joins what its owner approves in a linked browser (`coterie device link`), and waits
        for more of it until Ctrl-C.
        """
        if ask_owner and not self._owner.is_linked:
            raise BadHome(f"no browser is linked with {self.home.folder}; run `coterie device link` first")
        if not ask_owner and not self._enrolments:
            raise CoterieError("this agent has joined no task; call join with a task's id or name first")
        summary = RunSummary()
        self._asks_owner = ask_owner
        try:
            with self._only_one(), self._heartbeat(), self._clerking() as self._clerk:
                if ask_owner:
                    self._enrolments.join_approved()
                self._work_until_ended(summary)
        except (KeyboardInterrupt, Interrupted):
            summary.tasks |= dict.fromkeys(self._enrolments.keys() - summary.tasks.keys(), "interrupted")
            _log.info("%s stops; it goes on where it was when started again", self.identity.name)
        finally:
            self._stop.clear()  # it asked this run to stop, not the next one
            self.platform.close()
        return summary

    def _work_until_ended(self, summary: RunSummary) -> None:
        self._last: tuple[str, int, int] | None = None
        pauses = Backoff().pauses()
        while self._asks_owner or len(summary.tasks) < len(self._enrolments):
            try:
                self._owner.heed(self._do_as_decided)
                self._owner.tell()
                self._work_once(summary)
                pauses = Backoff().pauses()
            except (Fault, BadAnswer) as error:
                # The platform's own mistake; what was prepared is stored, so nothing is lost by asking again.
                request = getattr(error, "request_id", "")
                reason = f"request {request}" if request else str(error)
                _log.warning("%s: the platform failed (%s); retrying", self.identity.name, reason)
                self._stop.sleep(next(pauses))

    def _work_once(self, summary: RunSummary) -> None:
        open_tasks = [task for task in self._enrolments if task not in summary.tasks]
        if not open_tasks:
            if self._asks_owner:
                self._stop.sleep(_ASK_SECONDS * (1.0 + 0.2 * random.random()))
            return
        began = time.monotonic()
        wait = min(self._poll_seconds, _LISTEN_SECONDS) if self._owner.is_linked else self._poll_seconds
        work = self._enrolments.own(self._ask_for_work(open_tasks, wait))
        summary.tasks |= {task: state for task, state in work.ended.items() if task in self._enrolments}
        for task in work.ended.keys() & self._reported.keys():
            objections.after_task(self.platform, task, self._reported.pop(task), self.identity.id)
        for item in work.items:
            if self.home.is_paused:
                summary.rounds.extend(self._rest(item))
                continue
            if item.measure is not None:
                self._bench.measure(item)
                continue
            place = (item.task_id, item.round, item.attempt)
            if place == self._last:
                # The platform has not noticed yet what we told it; do not hammer it.
                self._stop.sleep(_HASTY_SECONDS * (1.0 + random.random()))
            left_over = self._bench.finish_left_over(item) if self._last is None else None
            self._last = place
            objections.after_round(self.platform, item)
            if item.role == "member":
                self._reported[item.task_id] = item.round
            summary.rounds.append(self._tell(left_over or self._bench.do(item)))
            self._bench.take_in(item)
            self._enrolments.tell_samples(item.task_id)
        self._pace(work, time.monotonic() - began)

    def _ask_for_work(self, tasks: Sequence[str], wait_seconds: float) -> Work:
        if self._clerk is None:
            return self.platform.work(tasks=tasks, wait_seconds=wait_seconds)
        work = self.platform.work(tasks=tasks, wait_seconds=wait_seconds, clerk=self._clerk.begin_waiting())
        self._clerk.end_waiting(called=work.duties)
        return work

    # --- what the owner decides elsewhere ----------------------------------------------------------------------------

    def _do_as_decided(self, choice: Choice) -> str:
        """Carry out the owner's decision and return the note that answers it."""
        if choice.act == "join":
            if not self._asks_owner:
                raise Declined(
                    "the device serves only the tasks it was started with; start it with `coterie device run` alone"
                )
            self.join(choice.task, terms=choice.terms)
            self.home.save_approved({**self.home.approved(), choice.task: choice.terms})
            return "joined"
        if choice.act == "refuse":
            self._reported.pop(choice.task, None)
            return "left" if self._enrolments.leave(choice.task) else "refused"
        paused = choice.act == "pause"
        self.home.keep_private({"paused": paused})
        return "pauses" if paused else "works again"

    def _rest(self, work: WorkItem) -> Iterator[RoundResult]:
        """Does nothing, because the owner has paused the device, and says so: the others need not wait for it."""
        self._stop.sleep(_HASTY_SECONDS)
        if work.measure is not None:
            measurement.tell(self.platform, work, {})
            return
        why = "its owner has paused this device"
        self._bench.decline(work, why)
        yield self._tell(RoundResult(work.task_id, work.round, "declined", 0.0, {}, why))

    def _pace(self, work: Work, took_seconds: float) -> None:
        """Waits as long as the platform asks; an empty answer that came at once is not followed by another."""
        pause = work.retry_after_seconds * (1.0 + 0.2 * random.random())
        if not work.items and not work.ended and took_seconds < _HASTY_SECONDS:
            pause = max(pause, _HASTY_SECONDS)
        if not work.items and pause > 0.0:
            self._stop.sleep(pause)

    def _tell(self, result: RoundResult) -> RoundResult:
        _log.info("%s round %d: %s %s", self.identity.name, result.round, result.outcome, result.note)
        if self._on_round is not None:
            self._on_round(result)
        return result

    def _clerking(self) -> AbstractContextManager[Clerking | None]:
        """Serves as a clerk while the agent runs, where one of its tasks has, or may come to have, secure sums."""
        is_secure = self._asks_owner or any(task.joined.secure for task in self._enrolments.values())
        if not self.home.circle().clerk or not is_secure:
            return nullcontext()
        stop, patient = Stop(), Backoff(patience_seconds=float("inf"))
        platform = Platform(
            self.identity.url,
            self.identity.api_key,
            cache=self.platform.cache,
            backoff=patient,
            stop=stop,
            verify=self._verify,
        )
        return Clerking(platform, self.identity.id, self._keys, self.home.committee_store(), stop)

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


def _check_options(on_error: str, poll_seconds: float, heartbeat_seconds: float) -> None:
    if on_error not in ("stop", "continue"):
        raise ValueError(f"on_error is {on_error!r}; give stop or continue")
    if not 0.0 <= poll_seconds <= 30.0 or not heartbeat_seconds > 0.0:
        raise ValueError("poll_seconds must be from 0 to 30, and heartbeat_seconds above 0")
