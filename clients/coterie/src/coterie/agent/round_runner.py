"""Run one work item, from the work to the platform's answer to the update.

The runner stores every release before it sends it. It declines work that it cannot or must not do, with a reason that
reveals nothing about the privacy spent; only the owner reads those figures.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from safetensors.numpy import save as save_tensors

from coterie.agent.enrolment import Enrolments
from coterie.agent.home import DeviceHome, DeviceIdentity, Prepared
from coterie.agent.mail import Mail
from coterie.agent.results import RoundResult, late
from coterie.agent.workload import Workload
from coterie.client import Platform
from coterie.errors import (
    CorruptDownload,
    CoterieError,
    Declined,
    Fault,
    InvalidRequest,
    LearnerFailed,
    NotInCircle,
    Refused,
    RoundOver,
    TooLarge,
    WrongModel,
)
from coterie.learning import measurement
from coterie.learning.learner import Guarded, Learner
from coterie.parameters.topology import CellsParameters
from coterie.privacy.ledger import LedgerError, PrivacyLedger
from coterie.privacy.stream import Stream
from coterie.protocol.keys import DeviceKeys
from coterie.protocol.transport import Interrupted
from coterie.records import WorkItem
from coterie.records.enums import RoundMode
from coterie.secure_sums.uploads import FORM as MASKED
from coterie.strategies import Strategy, consent
from coterie.strategies.context import RoundContext, round_seed
from coterie.strategies.masked import is_hidden_alone, refuse_downgrade

_log = logging.getLogger("coterie.agent.agent")


@dataclass(frozen=True, slots=True)
class RoundRunner:
    """What a device needs for its work.

    Attributes:
        home, identity, keys, ledger: the device's.
        platform: who asks for the work.
        enrolments: tasks it has joined, by id.
        learner: how it learns; None on a device that trains nothing.
        public_figures: whether the learner's figures are of samples that the owner calls public.
        choose: picks the strategy for a work item.
        seed: of the training order; None for the task's.
        noise: makes the stream that one release draws its noise from.
        stopping: True when the device is to stop.
        goes_on: whether it goes on when its learner's code raises.
    """

    home: DeviceHome
    identity: DeviceIdentity
    keys: DeviceKeys
    ledger: PrivacyLedger
    platform: Platform
    enrolments: Enrolments
    learner: Learner | None
    public_figures: bool
    choose: Callable[[WorkItem], Strategy]
    seed: int | None
    noise: Callable[[], Stream]
    stopping: Callable[[], bool]
    goes_on: bool

    def do(self, work: WorkItem) -> RoundResult:
        """Prepares and delivers a round's update, or declines."""
        began = time.monotonic()
        metrics: dict[str, float] = {}
        try:
            Workload.of(self.home.private_settings()).check(work)
            prepared = self.prepare(work)
            metrics = json.loads(prepared.report)["metrics"]
            size_bytes, sent = prepared.size_bytes, time.monotonic()
            outcome, note = self._deliver(prepared)
            if outcome == "accepted":
                self._tell_way(work, size_bytes, time.monotonic() - sent)
            if outcome == "late":
                note = late(note, work, time.monotonic() - began)
        except LedgerError as error:
            outcome, note = "declined", str(error)
            self.decline(work, "the device's privacy ledger cannot be used")  # its words may hold what was spent
        except NotInCircle as error:
            outcome, note = "declined", str(error)
            self.decline(work, str(error), error.strangers)
        except LearnerFailed as error:
            outcome, note = "declined", str(error)
            _log.error("%s round %d: %s", self.identity.name, work.round, error, exc_info=error.__cause__)
            self.decline(work, str(error))
            if not self.goes_on:
                raise
        except (Declined, WrongModel, CorruptDownload) as error:
            outcome, note = "declined", _for_the_owner(error)
            self.decline(work, str(error))
        except RoundOver as error:
            # The round ended or got a new plan while this device worked; it asks for work again.
            outcome, note = "late", late(error, work, time.monotonic() - began)
        except (CoterieError, Interrupted, KeyboardInterrupt):
            raise
        except Exception as error:
            _log.error("%s round %d failed", self.identity.name, work.round, exc_info=error)
            # The text may hold what the noise is to hide; it stays in this device's log.
            detail = "" if self._hides(work) else f": {error}"
            self.decline(work, f"training failed: {type(error).__name__}{detail}")
            raise
        self.home.outbox.forget_before(work.task_id, work.round)
        return RoundResult(work.task_id, work.round, outcome, time.monotonic() - began, metrics, note)

    def take_in(self, work: WorkItem) -> None:
        """Lets the learner take over data that has come since a round."""
        if self.learner is None:
            return
        try:
            Guarded(self.learner).arrive()
        except LearnerFailed as error:
            _log.error("%s after round %d: %s", self.identity.name, work.round, error, exc_info=error.__cause__)
            if not self.goes_on:
                raise

    def finish_left_over(self, work: WorkItem) -> RoundResult | None:
        """Hands in what was prepared for an earlier round before this device stopped, where that still counts."""
        if self.enrolments[work.task_id].specification.mode is not RoundMode.ASYNCHRONOUS:
            return None
        began, prepared = time.monotonic(), self.home.outbox.find_latest(work.task_id, work.round)
        if prepared is None:
            return None
        joined = self.enrolments[work.task_id].joined
        prepared = replace(prepared, report=consent.as_taken(prepared.report, joined.privacy))
        outcome, note = self._deliver(prepared)
        if outcome != "accepted":
            return None
        metrics = json.loads(prepared.report)["metrics"]
        return RoundResult(work.task_id, prepared.round, outcome, time.monotonic() - began, metrics, note)

    def measure(self, work: WorkItem) -> None:
        """Measure a model without training it; report no metrics where it cannot, so that the round goes on."""
        metrics: dict[str, float] = {}
        try:
            Workload.of(self.home.private_settings()).check(work)
            joined = self.enrolments[work.task_id].joined
            refuse_downgrade(work, joined, self.home.circle())
            consent.refuse_other_privacy(joined.privacy, work.privacy)
            metrics = measurement.measured(self._context(work))
        except (Fault, Interrupted, KeyboardInterrupt):
            raise
        except Declined as error:
            _log.info("%s does not measure version %s: %s", self.identity.name, work.measure, error)
        except Exception:
            _log.exception("%s could not measure version %s", self.identity.name, work.measure)
        measurement.tell(self.platform, work, metrics)

    def prepare(self, work: WorkItem) -> Prepared:
        """Return the update of a round, from the outbox where it was prepared before a crash."""
        joined = self.enrolments[work.task_id].joined
        result = self.home.outbox.find(work.task_id, work.round, work.basis)
        if result is not None:
            return replace(result, report=consent.as_taken(result.report, joined.privacy))
        refuse_downgrade(work, joined, self.home.circle())
        consent.refuse_other_privacy(joined.privacy, work.privacy)
        delivery = self.choose(work).prepare(self._context(work))
        if joined.secure and delivery.form != MASKED and not is_hidden_alone(work, joined):
            raise Declined("this task was joined as secure; nothing but masked words leaves this device")
        tensors = delivery.tensors
        body = None if tensors is None else save_tensors({name: np.asarray(item) for name, item in tensors.items()})
        return self.home.outbox.put(work.task_id, work.round, work.basis, delivery.report(), body)

    def decline(self, work: WorkItem, why: str, strangers: Sequence[str] = ()) -> None:
        """Tell the platform that this device does not do a work item, so that the round goes on."""
        terms = hashlib.sha256(work.sum.encode()).hexdigest() if work.sum else ""
        self._decline_round(work.task_id, work.round, why, strangers, terms)

    def _hides(self, work: WorkItem) -> bool:
        joined = self.enrolments[work.task_id].joined
        return consent.hides(joined.privacy, joined)

    def _context(self, work: WorkItem) -> RoundContext:
        enrolment = self.enrolments[work.task_id]
        seed = enrolment.specification.seed if self.seed is None else self.seed
        return RoundContext(
            work,
            self.identity.id,
            self.keys,
            self.learner,
            enrolment.reported.most_weight(self.enrolments.samples_now(tells=not self._hides(work))),
            Mail(self.platform, work, self.identity.id, self.keys, self.home.outbox, self.home.circle()),
            self.ledger,
            self.home.private_settings(),
            self.home.memory(work.task_id),
            self.home.outbox,
            partial(self.platform.download_model, most_bytes=_largest_model(work)),
            round_seed(seed, enrolment.specification.name, work.round, self.identity.name),
            self.noise,
            self.stopping,
            self.home.keep_private,
            enrolment.joined.privacy,
            enrolment.joined,
            self.identity.owner_id,
            self.home.save_circle,
            self.public_figures,
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

    def _tell_way(self, work: WorkItem, size_bytes: int, seconds: float) -> None:
        """Tells the cell that serves this device round trip and throughput of its way, where the task goes by that."""
        if not work.cell or CellsParameters.of(work.parameters).times != "measured":
            return
        try:
            asked = time.monotonic()
            self.platform.me()  # as little as a request and its answer can carry
            round_trip = time.monotonic() - asked
            self.platform.report_way(
                work.task_id,
                self.identity.id,
                work.cell,
                seconds=seconds,
                round_trip_seconds=round_trip,
                # An upload no longer than a round trip was too small to tell.
                bytes_per_second=size_bytes / (seconds - round_trip) if seconds > round_trip else 0.0,
            )
        except CoterieError as error:  # no reason to stop: the last report stands
            _log.info("%s could not report what its upload takes: %s", self.identity.name, error)

    def _decline_round(
        self, task_id: str, round: int, why: str, strangers: Sequence[str] = (), terms: str = ""
    ) -> None:
        try:
            self.platform.decline(task_id, round, why, strangers=strangers, terms=terms)
        except RoundOver:
            _log.info("%s: round %d was over before it was declined", self.identity.name, round)


def _largest_model(work: WorkItem) -> int:
    """Bytes a model of this work may have: an update is as large, and masked words are half as wide at the least."""
    return 2 * work.max_update_bytes if work.sum else work.max_update_bytes


def _for_the_owner(error: CoterieError) -> str:
    """Why a round was declined, with the figures that the platform is not told."""
    return f"{error}: {error.__cause__}" if isinstance(error.__cause__, LedgerError) else str(error)
