"""An open round in a replica's memory: device states, and the sums folded so far.

All of it can be rebuilt from the database and the blob store; losing it costs time, never a result.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace

from coterie.records.enums import Form, ParticipationState, SumState
from coterie.secure_sums.uploads import most_bytes
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.aggregation.domain.accumulator import Accumulator
from services.aggregation.domain.masked import MaskedFile, MaskedSum, check_signed, read_file
from services.aggregation.domain.records import Delivery, Participation, Round, Task
from services.aggregation.domain.rules.choice import choose
from services.aggregation.domain.sum_sessions import MaskedUpdate, SumSession
from services.aggregation.errors import BadUpdate
from services.aggregation.store.model_files import ModelFiles, UpdateReader
from services.aggregation.strategies import strategy_for
from services.aggregation.strategies.base import PRIVATE_NORM
from services.aggregation.strategies.roster import Update


class OpenRound:
    """An open round on this replica."""

    def __init__(
        self,
        task: Task,
        round_: Round,
        participations: Sequence[Participation],
        bases: Sequence[tuple[str, int]],
        sum_sessions: Mapping[int, SumSession] | None = None,
    ) -> None:
        self.task = task
        self.round = round_
        self.bases = tuple(bases)
        self.strategy = strategy_for(task.specification)
        self.choice = choose(task.specification.rule, task.specification.parameters_json)
        self.buffering = task.specification.buffering
        self.roster = self.strategy.progress.build_roster(participations, round_.attempt)
        self._unasked: Iterator[str] = iter(())
        self._awaited = ""
        self.folded: dict[str, Delivery] = {}
        self.handed_over: frozenset[str] | None = None  # devices in the partial sum that this replica published
        self.lock = asyncio.Lock()
        self._sums: dict[int, Accumulator] = {}
        self.sum_sessions: dict[int, SumSession] = {}
        self._cohorts: dict[str, int] = {}
        self.set_sum_sessions(sum_sessions or {})
        self.most_of_an_owner = self._most_of_an_owner()
        self.is_full = False
        self.notice()

    @property
    def pending(self) -> int:
        """Number of participants that may still deliver."""
        return self._count(ParticipationState.ASSIGNED)

    @property
    def is_waiting(self) -> bool:
        """Whether a device may still deliver.

        Called after every update, so it remembers one such device and searches on from there: O(1) amortised.
        """
        if self._may_deliver(self._awaited):
            return True
        self._awaited = next(filter(self._may_deliver, self._unasked), "")
        if not self._awaited:  # devices before this position may have new work
            self._unasked = iter(list(self.roster.states))
            self._awaited = next(filter(self._may_deliver, self._unasked), "")
        return bool(self._awaited)

    def _may_deliver(self, device_id: str) -> bool:
        known = device_id in self.roster.states
        return known and self.strategy.progress.effective_state(self.roster, device_id) is ParticipationState.ASSIGNED

    @property
    def delivered(self) -> int:
        """Number of participants whose work counts."""
        return self._count(ParticipationState.DELIVERED)

    def notice(self) -> None:
        """Update `is_full` of an asynchronous round; devices still at work deliver to a later round."""
        if self.buffering is not None:
            self.is_full = self.delivered >= self.round.quorum and not self.unbearable

    def has_its_share(self, device_id: str) -> bool:
        """Whether the buffer holds all updates it accepts of a device's owner; later ones wait for the next."""
        if self.buffering is None:
            return False
        owner, states = self.roster.owners.get(device_id), self.roster.states
        taken = sum(self.roster.owners[d] == owner for d, s in states.items() if s is ParticipationState.DELIVERED)
        return taken >= self.most_of_an_owner

    def _most_of_an_owner(self) -> int:
        """Return how many updates of one owner's devices the buffer accepts."""
        if self.buffering is None:
            return 0
        return self.strategy.terms.bounds.most_in_buffer(self.round.quorum, self.roster.owners, self.round.attempt)

    def admit(self, participations: Sequence[Participation]) -> list[str]:
        """Add devices that got work after the round opened; return their ids."""
        fresh = self.roster.add_new(self.strategy.progress.build_roster(participations, self.round.attempt))
        self.most_of_an_owner = self._most_of_an_owner()
        self.notice()
        return fresh

    def discount(self, staleness: int) -> float:
        """Return the weight of an update this many versions stale, relative to a fresh one."""
        return 1.0 if self.buffering is None else self.buffering.discount(staleness)

    @property
    def unbearable(self) -> str:
        """Why the task's rule cannot combine the updates so far; empty when it can."""
        return self.unbearable_without(())

    def unbearable_without(self, refused: Container[str]) -> str:
        """Return why the task's rule cannot combine the updates of all but these devices; empty when it can."""
        seen = [device for device in self.strategy.progress.visible_devices(self.roster) if device not in refused]
        if not self.choice.by_trust:
            return self.choice.rule.why_not(len(seen))
        trusted = sum(self.roster.items[device].trust_weight > 0 for device in seen)
        return self.choice.rule.why_not(trusted) if trusted or not seen else "no device that delivered is trusted"

    def _count(self, state: ParticipationState) -> int:
        return sum(
            self.strategy.progress.effective_state(self.roster, device) is state for device in self.roster.states
        )

    def max_update_bytes(self, device_id: str) -> int:
        """Return a device's largest accepted update: the model's size plus a header, or what its sum's terms allow."""
        session = self.session_of(device_id)
        if session is not None and session.terms:
            return most_bytes(session.read_terms)
        return max(size for _, size in self.bases) + 65_536

    def max_letter_bytes(self) -> int:
        """Return the largest letter accepted: a sealed update in twice the precision, plus 1 MiB for its metadata."""
        return 2 * max(size for _, size in self.bases) + 1_048_576

    def work_of(self, device_id: str) -> pb.WorkItem | None:
        """Return a device's work item; None without one, or while its sum has no terms yet."""
        if self.roster.states.get(device_id) is not ParticipationState.ASSIGNED:
            return None
        item, session = self.roster.items[device_id], self.session_of(device_id)
        if session is None:
            return item if self.is_clear(device_id) else None
        if session.state is not SumState.OPEN:
            return None
        masked_item = pb.WorkItem()
        masked_item.CopyFrom(item)
        masked_item.sum, masked_item.deadline_at = session.terms, session.deadline_at
        masked_item.attempt = session.attempt
        masked_item.max_update_bytes = self.max_update_bytes(device_id)
        masked_item.self_weight = self.masked_weight(device_id)
        return masked_item

    # --- secure sums --------------------------------------------------------------------------------------------------

    @property
    def is_secure(self) -> bool:
        """Whether updates go into secure sums; in clusters, those of solo devices do not."""
        return bool(self.sum_sessions)

    def is_clear(self, device_id: str) -> bool:
        """Whether a device sends its update unmasked."""
        apart = self.strategy.secure_sums.is_per_cluster and self.roster.items[device_id].role == words.ROLE_SOLO
        return apart or not self.is_secure

    def set_sum_sessions(self, sum_sessions: Mapping[int, SumSession]) -> None:
        """Replace the sum sessions, by cohort; restart the sum of a cohort with a new session."""
        for cohort, session in sum_sessions.items():
            before = self.sum_sessions.get(cohort)
            if before is None or before.participants != session.participants:
                others = {device: its for device, its in self._cohorts.items() if its != cohort}
                self._cohorts = others | dict.fromkeys(session.people.keys, cohort)
            if before is not None and before.session_number != session.session_number:
                self._restart(cohort)
        self.sum_sessions = dict(sum_sessions)

    def session_of(self, device_id: str) -> SumSession | None:
        """Return the session a device's update goes into."""
        if device_id not in self.roster.items or self.is_clear(device_id):
            return None
        cohort = self._cohorts.get(device_id)
        return None if cohort is None else self.sum_sessions.get(cohort)

    def clerks_for(self, session: SumSession) -> list[str]:
        """Return the devices that may be clerks of a sum."""
        return list(session.people.keys if self.strategy.secure_sums.is_per_cluster else self.roster.states)

    @property
    def is_whole(self) -> bool:
        """Whether one secure sum holds all devices of the round: its quorum is then the round's."""
        return len(self.sum_sessions) == 1 and not self.strategy.secure_sums.is_per_cluster

    def masked_weight(self, device_id: str) -> float:
        """Return the largest weight of a device's masked update: its counted samples, or 1 with noise."""
        session = self.session_of(device_id)
        assert session is not None
        return self.strategy.secure_sums.weight(self.roster, device_id, noised=session.read_terms.noise > 0.0)

    def line_of(self, delivery: Delivery) -> int:
        """Return the index of a delivery's sum: its cohort, or its model line."""
        return self._cohorts.get(delivery.device_id, 0) if delivery.form is Form.MASKED else delivery.model_index

    def take_masked(self, model_files: ModelFiles, delivery: Delivery, whole: memoryview | None = None) -> MaskedUpdate:
        """Check and fold a masked update; return its record. Call from a worker thread, under the lock."""
        session = self.session_of(delivery.device_id)
        assert session is not None
        read, terms = UpdateReader(model_files.blobs, delivery, whole), session.read_terms
        file = read_file(read, delivery.size_bytes, terms)
        key = session.people.keys[delivery.device_id]
        masked = check_signed(
            file,
            read,
            terms,
            device=delivery.device_id,
            signing_key=key,
            signature=bytes.fromhex(delivery.signature),
        )
        self._add_masked(model_files, delivery, file, read, sign=1)
        place = (session.task_id, session.round, session.cohort, session.session_number)
        proof = (masked, file.root.hex(), file.letter_key.hex(), delivery.signature)
        return MaskedUpdate(*place, delivery.device_id, delivery.digest, *proof, file.letters)

    def _fold_masked(self, model_files: ModelFiles, delivery: Delivery, *, sign: int) -> None:
        session = self.session_of(delivery.device_id)
        assert session is not None
        read = UpdateReader(model_files.blobs, delivery)
        self._add_masked(
            model_files, delivery, read_file(read, delivery.size_bytes, session.read_terms), read, sign=sign
        )

    def _add_masked(
        self, model_files: ModelFiles, delivery: Delivery, file: MaskedFile, read: UpdateReader, *, sign: int
    ) -> None:
        total = self.masked_sum(model_files, self.line_of(delivery))
        total.add(read, file.words, delivery.weight, sign=sign)
        if sign > 0:
            self.folded[delivery.device_id] = delivery
        else:
            del self.folded[delivery.device_id]

    def masked_sum(self, model_files: ModelFiles, cohort: int) -> MaskedSum:
        """Return the sum of a cohort's masked words; create it on first use."""
        if cohort not in self._sums:
            terms = self.sum_sessions[cohort].read_terms
            self._sums[cohort] = MaskedSum(model_files.layout(*self.bases[0]), terms)
        total = self._sums[cohort]
        assert isinstance(total, MaskedSum)
        return total

    def _restart(self, cohort: int) -> None:
        """Drop the sum of a cohort's earlier session."""
        total = self._sums.pop(cohort, None)
        if total is not None:
            total.close()
        for device in [device for device in self.folded if self._cohorts.get(device) == cohort]:
            del self.folded[device]

    # --- clear sums ---------------------------------------------------------------------------------------------------

    def take(self, model_files: ModelFiles, delivery: Delivery, whole: memoryview | None = None) -> Delivery:
        """Fold and inspect a delivery; return it with its measurements. A bad one is unfolded again and raises.

        Call from a worker thread, under the lock; `whole` is the update if it was prefetched.
        """
        read = UpdateReader(model_files.blobs, delivery, whole)
        layout, norm = read.layout(), self._fold(model_files, delivery, read)
        elements = self.sum_of(model_files, delivery.model_index).layout.elements
        bound = self.round.norm_bounds.get(str(delivery.model_index), math.inf)
        try:
            measured = self.strategy.delivery.inspect(
                Update(delivery, self.roster, layout, read, elements, norm, bound)
            )
        except BadUpdate:
            self.unfold(model_files, delivery)
            raise
        # Stored only where later rounds compare norms: the norm of a survey's answer reveals the answer.
        retained = norm if self.strategy.terms.stores_norms else PRIVATE_NORM if norm > 0.0 else 0.0
        return replace(delivery, metrics=delivery.metrics | measured, norm=retained)

    def fold(self, model_files: ModelFiles, delivery: Delivery, whole: memoryview | None = None) -> None:
        """Fold an already accepted delivery; call from a worker thread, under the lock."""
        if delivery.form is Form.MASKED:
            self._fold_masked(model_files, delivery, sign=1)
            return
        self._fold(model_files, delivery, UpdateReader(model_files.blobs, delivery, whole))

    def _fold(self, model_files: ModelFiles, delivery: Delivery, read: UpdateReader) -> float:
        """Fold a delivery; return the norm of its update, or of a sum's mean."""
        total, is_sum = self.sum_of(model_files, delivery.model_index), delivery.form is Form.SUM
        discount = self.discount(delivery.staleness)
        norm = total.fold(read.layout(), read, delivery.weight, is_sum=is_sum, discount=discount)
        self.folded[delivery.device_id] = delivery
        return norm / delivery.weight if is_sum else norm

    def unfold(self, model_files: ModelFiles, delivery: Delivery) -> None:
        """Subtract a folded delivery; call from a worker thread, under the lock."""
        if delivery.form is Form.MASKED:
            self._fold_masked(model_files, self.folded[delivery.device_id], sign=-1)
            return
        read = UpdateReader(model_files.blobs, delivery)
        total = self._sums.get(delivery.model_index)
        if total is None:
            return  # the round has closed meanwhile
        discount = self.discount(delivery.staleness)
        total.unfold(read.layout(), read, delivery.weight, is_sum=delivery.form is Form.SUM, discount=discount)
        self.folded.pop(delivery.device_id, None)

    def sum_of(self, model_files: ModelFiles, line: int) -> Accumulator:
        """Return the sum of a model line, or of a cohort; create it on first use."""
        if line in self.sum_sessions:
            return self.masked_sum(model_files, line)
        if line not in self._sums:
            layout = model_files.layout(*self.bases[line])
            self._sums[line] = self.strategy.combination.make_accumulator(
                layout, self.round.scale, len(self.roster.items)
            )
        return self._sums[line]

    def sums(self) -> dict[int, Accumulator]:
        """Return the sums so far, by model line."""
        return dict(self._sums)

    def close(self) -> None:
        """Release all sums."""
        for total in self._sums.values():
            total.close()
        self._sums.clear()
        self.folded.clear()
