"""The tasks that a device has joined: what it was shown then, and what the platform was told."""

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
from coterie.secure_sums.joining import Joined, kept
from coterie.strategies import consent, sums_apart

_log = logging.getLogger("coterie.agent.agent")


@dataclass(frozen=True, slots=True)
class Told:
    """Samples the platform was told of, and how uneven they are; a round may have opened before it was told last."""

    before: int
    now: int
    non_iid: float

    def spoken_for(self, samples: int) -> int:
        """What an update may weigh of so many samples: no more than the round's opening can have known of."""
        return min(samples, self.before, self.now)


@dataclass(frozen=True, slots=True)
class Enrolment:
    """One joined task."""

    specification: TaskSpecification
    joined: Joined
    told: Told


class Enrolments(Mapping[str, Enrolment]):
    """All of them, by task."""

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
        """Of a device that learns with `learner`, or with none speaks for `still_samples`."""
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
        """Training samples now; the learner's word is checked."""
        return self.samples_now(tells=True)

    def samples_now(self, *, tells: bool) -> int:
        """The same; where `tells` is not, a fault of the learner tells its kind alone."""
        return self._still_samples if self._learner is None else Guarded(self._learner, tells=tells).samples

    def join(self, task: str, *, non_iid: float, terms: str, quietly: bool) -> str:
        """Enrols in a task by id or name; returns its id."""
        samples = self.samples
        result = self._platform.find_task(task)
        sound_id(result.id)  # folders are named after it
        if terms:
            agreed(result, terms)
        spec = result.specification
        self._enrol(spec, result.id, samples, non_iid)
        shown = Joined.of(spec.privacy, spec.parameters, apart=sums_apart(spec.topology))
        joined = kept(self._home.joined(result.id), shown)
        self._tasks[result.id] = Enrolment(spec, joined, Told(samples, samples, non_iid))
        said = consent.in_words(spec.privacy, self._ledger, consent.lifetime_of(spec))
        if said and not quietly:
            _log.warning("%s joins %s: %s", self._identity.name, spec.name, said)
        return result.id

    def join_approved(self) -> None:
        """Joins what the owner approved before; what cannot be joined any more is forgotten."""
        for task, terms in self._home.approved().items():
            try:
                self.join(task, non_iid=0.0, terms=terms, quietly=False)
            except (Refused, Declined) as error:
                _log.warning("%s: %s, which its owner approved, is not joined: %s", self._identity.name, task, error)
                self._disapprove(task)

    def leave(self, task: str) -> bool:
        """Takes no further part in a task; whether it had one."""
        self._disapprove(task)
        if task not in self._tasks:
            return False
        self._platform.withdraw(task, self._identity.id)
        del self._tasks[task]
        return True

    def tell_samples(self, task_id: str) -> None:
        """Tells the platform when the device has more or fewer samples than it last said."""
        task = self._tasks[task_id]
        try:
            now = self.samples
            if now != task.told.now:
                self._enrol(task.specification, task_id, now, task.told.non_iid)
        except (Refused, BadLearner) as error:
            _log.info("%s: the platform was told of no other number of samples: %s", self._identity.name, error)
            return
        self._tasks[task_id] = replace(task, told=Told(task.told.now, now, task.told.non_iid))

    def own(self, work: Work) -> Work:
        """The platform's answer without what this device never joined: it owes nobody that work."""
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
        is_told = specification.privacy == consent.NO_NOISE or self._public_figures
        measures = self._learner is not None and is_told
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
