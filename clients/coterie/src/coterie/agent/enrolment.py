"""The tasks that a device has joined: the terms it saw then, and the samples it reported."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from coterie.agent.home import DeviceHome, DeviceIdentity
from coterie.agent.owner_decisions import agreed
from coterie.agent.workload import sound_id
from coterie.client import Platform
from coterie.errors import BadLearner, Declined, Refused
from coterie.learning.learner import Guarded, Learner
from coterie.privacy.ledger import PrivacyLedger
from coterie.records import TaskSpecification, Work
from coterie.secure_sums.joining import Joined, load_or_store
from coterie.strategies import consent, sums_apart

_log = logging.getLogger("coterie.agent.agent")


@dataclass(frozen=True, slots=True)
class ReportedSamples:
    """The last two reported numbers of samples; a round may have opened before the last report."""

    before: int
    now: int
    non_iid: float

    def most_weight(self, samples: int) -> int:
        """Return what an update of this many samples may weigh: at most what the round's opening knew of."""
        return min(samples, self.before, self.now)


@dataclass(frozen=True, slots=True)
class Enrolment:
    """One joined task."""

    specification: TaskSpecification
    joined: Joined
    reported: ReportedSamples


class Enrolments(Mapping[str, Enrolment]):
    """The joined tasks by id."""

    def __init__(
        self,
        home: DeviceHome,
        identity: DeviceIdentity,
        ledger: PrivacyLedger,
        platform: Platform,
        learner: Learner | None,
        still_samples: int,
        public_figures: bool,
    ) -> None:
        """Create the enrolments of a device with this learner; without one it reports `still_samples`."""
        self._home, self._identity, self._ledger, self._platform = home, identity, ledger, platform
        self._learner, self._still_samples, self._public_figures = learner, still_samples, public_figures
        self._tasks: dict[str, Enrolment] = {}

    def __getitem__(self, task_id: str) -> Enrolment:
        return self._tasks[task_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def samples(self) -> int:
        """Number of training samples now, as the learner says and checks confirm."""
        return self.samples_now(tells=True)

    def samples_now(self, *, tells: bool) -> int:
        """Return the number of training samples; without `tells` a learner's error carries its type alone."""
        return self._still_samples if self._learner is None else Guarded(self._learner, tells=tells).samples

    def join(self, task: str, *, non_iid: float, terms: str, quietly: bool) -> str:
        """Enrol in a task by id or name; return its id."""
        samples = self.samples
        result = self._platform.find_task(task)
        sound_id(result.id)  # folders are named after it
        if terms:
            agreed(result, terms)
        spec = result.specification
        self._enrol(spec, result.id, samples, non_iid)
        shown = Joined.of(spec.privacy, spec.parameters, apart=sums_apart(spec.topology))
        joined = load_or_store(self._home.joined(result.id), shown)
        self._tasks[result.id] = Enrolment(spec, joined, ReportedSamples(samples, samples, non_iid))
        notice = consent.in_words(spec.privacy, self._ledger, consent.lifetime_of(spec))
        if notice and not quietly:
            _log.warning("%s joins %s: %s", self._identity.name, spec.name, notice)
        return result.id

    def join_approved(self) -> None:
        """Join the tasks that the owner approved before; forget those that refuse the device now."""
        for task, terms in self._home.approved().items():
            try:
                self.join(task, non_iid=0.0, terms=terms, quietly=False)
            except (Refused, Declined) as error:
                _log.warning("%s: %s, which its owner approved, is not joined: %s", self._identity.name, task, error)
                self._disapprove(task)

    def leave(self, task: str) -> bool:
        """Leave a task; return whether the device had joined it."""
        self._disapprove(task)
        if task not in self._tasks:
            return False
        self._platform.withdraw(task, self._identity.id)
        del self._tasks[task]
        return True

    def tell_samples(self, task_id: str) -> None:
        """Report the number of samples to the platform where it has changed."""
        task = self._tasks[task_id]
        try:
            now = self.samples
            if now != task.reported.now:
                self._enrol(task.specification, task_id, now, task.reported.non_iid)
        except (Refused, BadLearner) as error:
            _log.info("%s: the platform did not learn the new number of samples: %s", self._identity.name, error)
            return
        self._tasks[task_id] = replace(task, reported=ReportedSamples(task.reported.now, now, task.reported.non_iid))

    def own(self, work: Work) -> Work:
        """Return the work of joined tasks only; log and drop the rest."""
        own = tuple(item for item in work.items if item.task_id in self._tasks)
        for item in work.items:
            if item.task_id not in self._tasks:
                name = self._identity.name
                _log.warning("%s: work of %r, which it never joined, is ignored", name, item.task_id[:80])
        return work if len(own) == len(work.items) else replace(work, items=own)

    def _disapprove(self, task: str) -> None:
        self._home.save_approved({item: terms for item, terms in self._home.approved().items() if item != task})

    def _enrol(self, specification: TaskSpecification, task_id: str, samples: int, non_iid: float) -> None:
        circle = self._home.circle()
        is_public = specification.privacy == consent.NO_NOISE or self._public_figures
        measures = self._learner is not None and is_public
        self._platform.enrol(
            task_id,
            self._identity.id,
            samples=samples,
            non_iid=non_iid,
            clerks=[self._identity.id, *circle.members] if circle.takes_named_clerks_only else (),
            no_clerk=not circle.clerk,
            measures=measures,
            better=Guarded(self._learner).better if self._learner is not None and measures else {},
        )
