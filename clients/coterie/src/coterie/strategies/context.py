"""The context of a round: everything a strategy receives to do the work."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from coterie.agent.home import Outbox, TaskState
from coterie.agent.mail import Mail
from coterie.errors import Declined
from coterie.learning.learner import Guarded, Learner
from coterie.learning.models import is_statistic, load_model
from coterie.privacy.accounting import Charge, raw_charge
from coterie.privacy.ledger import Beside, BudgetExceeded, PrivacyLedger
from coterie.privacy.releases import Arrays, Release
from coterie.privacy.spending import BEYOND_LIMIT
from coterie.privacy.stream import FreshStream, Stream
from coterie.protocol.keys import DeviceKeys
from coterie.records import WorkItem
from coterie.secure_sums.circle import Circle
from coterie.secure_sums.joining import Joined
from coterie.strategies.consent import NO_NOISE, hides, is_consent


@dataclass(frozen=True, slots=True)
class RoundContext:
    """One round on one device.

    Attributes:
        work: what is asked.
        device_id: this device.
        keys: its keys.
        training: the device's learner; None on a device that trains nothing.
        samples: training samples it speaks for in this round.
        mail: sealed letters to and from the peers of this round.
        ledger: the device's privacy account; `release` charges it before anything leaves.
        private: what the owner keeps to itself, such as costs.
        memory: the strategy's state between rounds.
        outbox: stores releases before they are sent.
        fetch: returns the path of a model by its digest, downloaded if necessary.
        seed: of the training order in this round, a function of task, round and device.
        noise: makes the noise stream of one release; seeded in simulations only.
        stopping: whether the device is stopping.
        keep_private: stores private settings.
        joined_as: privacy of the task when the device joined it.
        joined: the task's sum parameters at that time; None for a device that does not store them.
        owner_id: the device's owner.
        keep_circle: replaces the owner's circle.
        public_figures: whether the learner's figures are of samples that the owner calls public.
    """

    work: WorkItem
    device_id: str
    keys: DeviceKeys
    training: Learner | None
    samples: int
    mail: Mail
    ledger: PrivacyLedger
    private: Mapping[str, Any]
    memory: TaskState
    outbox: Outbox
    fetch: Callable[[str], Path]
    seed: int
    noise: Callable[[], Stream] = FreshStream
    stopping: Callable[[], bool] = field(default=lambda: False)
    keep_private: Callable[[Mapping[str, Any]], None] = field(default=lambda settings: None)
    joined_as: str = ""
    joined: Joined | None = None
    owner_id: str = ""
    keep_circle: Callable[[Circle], None] = field(default=lambda circle: None)
    public_figures: bool = False

    def __post_init__(self) -> None:
        if self.training is not None and not isinstance(self.training, Guarded):
            guarded = Guarded(self.training, tells=not hides(self.work.privacy, self.joined))
            object.__setattr__(self, "training", guarded)

    @property
    def learner(self) -> Guarded:
        """The device's learner, which this strategy needs."""
        if not isinstance(self.training, Guarded):
            raise Declined("this task trains a model, but the device was started without one")
        return self.training

    def figures(self) -> dict[str, float]:
        """Figures of the model the learner holds, as far as they may be sent.

        Those of samples that the owner calls public always, of others only where `tells_figures`.
        """
        return self.learner.evaluate() if self.public_figures or self.tells_figures else {}

    @property
    def tells_figures(self) -> bool:
        """Whether exact figures of the device's own samples may be sent: only where its bare update might be, too.

        Noise covers no figure, one device's metric is not a sum, and an owner who lets nothing go without noise means
        figures as well.
        """
        if hides(self.work.privacy, self.joined):
            return False
        try:
            bare = raw_charge(self.work.task_id, self.work.round, "figures")
            self.ledger.check(bare, consented=is_consent(self.joined_as, self.work.privacy))
        except BudgetExceeded:
            return False
        return True

    @property
    def public_metrics(self) -> bool:
        """Whether this round's figures are of public samples and of the network alone, as `figures` sees to."""
        return self.work.privacy != NO_NOISE

    def release(self, release: Release, purpose: str = "", number: int | None = None) -> Arrays:
        """Noise a release, store it and charge it to the ledger; the only place where this is done.

        The charge is named by the task, this round (or `number`) and `purpose`, by default this attempt's, and bound to
        the bytes stored. The same work returns the same bytes without a new charge; any other release, also
        if the stored bytes are lost, is charged again. Declines if that would cross the owner's limit.
        """
        measured = next((name for name in getattr(release, "change", {}) if is_statistic(name)), "")
        if measured:
            raise Declined(
                f"the task promises noise, but its model holds running statistics ({measured}), which noise would "
                'spoil; make the model without them: model_bytes(module, exchange="trainable")'
            )
        place = (self.work.task_id, self.work.round if number is None else number, purpose or self.purpose)
        charge, consented = release.charge(*place), is_consent(self.joined_as, self.work.privacy)
        body = self.outbox.find_release(*place, self.work.basis)
        try:
            if body is None:
                self.ledger.check(charge, consented=consented)
                body = save_tensors(release.tensors(self.noise()))
                # Stored before it is charged: after a crash in between the device charges these bytes.
                self.outbox.put_release(*place, self.work.basis, body)
            self.ledger.charge(replace(charge, digest=hashlib.sha256(body).hexdigest()), consented=consented)
        except BudgetExceeded as error:
            self.outbox.drop_release(*place)
            raise Declined(_refusal(charge)) from error
        return dict(load_tensors(body))

    def check(self, charge: Charge) -> None:
        """Decline if a release of this cost would cross the owner's limit; write nothing."""
        self._within_limit(charge, self.ledger.check)

    def charge(self, charge: Charge, beside: Beside) -> None:
        """Charge a release identified by its name, and write its rows in the same transaction."""
        self._within_limit(charge, partial(self.ledger.charge, beside=beside))

    def _within_limit(self, charge: Charge, act: Callable[..., object]) -> None:
        try:
            act(charge, consented=is_consent(self.joined_as, self.work.privacy))
        except BudgetExceeded as error:
            raise Declined(_refusal(charge)) from error

    def prepared(self, purpose: str = "") -> Charge | None:
        """Return the charge of the release stored for this work, if any."""
        body = self.outbox.find_release(self.work.task_id, self.work.round, purpose or self.purpose, self.work.basis)
        digest = "" if body is None else hashlib.sha256(body).hexdigest()
        return next((charge for charge in self.charges() if digest and charge.digest == digest), None)

    def charges(self, number: int | None = None) -> tuple[Charge, ...]:
        """List every charge of this round, earlier attempts included."""
        entries = self.ledger.history(self.work.task_id, self.work.round if number is None else number)
        return tuple(entry.charge for entry in entries)

    def model(self, index: int = 0) -> Arrays:
        """Load the model to start from, of one line."""
        return load_model(self.fetch(self.work.model_digests[index]))

    @property
    def purpose(self) -> str:
        """Name of this round's release in the ledger; a further attempt makes other bytes, hence another release."""
        return "update" if self.work.attempt <= 1 else f"update-{self.work.attempt}"


def _refusal(charge: Charge) -> str:
    """Return the reason for declining the round, for the platform."""
    if charge.mechanism != "raw":
        return BEYOND_LIMIT
    return (
        "this device's limit allows nothing without provable noise, not even to those it trusts; "
        "give it Limit(…, allow_raw=True) to take part"
    )


def round_seed(seed: int, task_name: str, round: int, device_name: str) -> int:
    """Seed of one device's training in one round; names, not ids, so that a run can be repeated."""
    text = f"{seed}|{task_name}|{round}|{device_name}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
