"""What a way of learning decides on the server, and what it decides unless it says otherwise: as a star does.

A way is asked in the order of a round's life: is the task sound; who is planned for, quoted and told what; which
delivery is taken, with what weight and after which look at its content; what a device's state amounts to, who is given
up, how many are enough; what everybody ends the round as; who witnessed whom, and who is paid for what. It does no
input or output: what it needs to know it is given.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from coterie.records.words import Form, ParticipationState, Role
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.domain.accumulator import Accumulator, Read
from services.aggregation.domain.layout import Layout
from services.aggregation.domain.records import Delivery, Participation
from services.aggregation.domain.rounds import JUDGED, witness_pairs
from services.aggregation.domain.rules.choice import Choice
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.errors import BadTask, BadUpdate


class Tie(NamedTuple):
    """Somebody a device exchanges letters with."""

    device_id: str
    role: Role
    weight: float
    trusted: bool
    link_seconds: float = 0.0


@dataclass(slots=True)
class Roster:
    """Everybody in a round: what each was told to do, where each stands, and what was heard of it.

    `via` names for a device whose work reaches the platform through another that other one; `heard` is what the other
    reported of it: (outcome, note).
    """

    items: dict[str, pb.WorkItem]
    states: dict[str, ParticipationState]
    samples: dict[str, int]
    attempt: int = 1
    via: dict[str, str] = field(default_factory=dict)
    heard: dict[str, tuple[ParticipationState, str]] = field(default_factory=dict)

    def hear(self, device_id: str, reports: Iterable[Mapping[str, object]]) -> None:
        """Takes note of what a device reports of those it delivers for; of others its word counts for nothing."""
        for report in reports:
            other = str(report["device_id"])
            if self.via.get(other) == device_id:
                self.heard[other] = (ParticipationState(str(report["outcome"])), str(report["note"]))


@dataclass(frozen=True, slots=True)
class Update:
    """A delivered update, to be looked at before it is folded.

    Attributes
    ----------
    delivery, item, samples : what came, what the device was told, and the samples it enrolled with.
    layout, read : where the update's tensors lie, and its bytes.
    elements : numbers in the model.
    is_copy : whether another device delivered these very bytes.
    """

    delivery: Delivery
    item: pb.WorkItem
    samples: int
    layout: Layout
    read: Read
    elements: int
    is_copy: bool


class Way:
    """One way of learning, for one task."""

    form: ClassVar[Form] = Form.MEAN
    """The form of delivery it takes."""
    sells: ClassVar[bool] = False
    """Whether devices are told their offer, to decide by it."""
    patience: ClassVar[float] = 1.0
    """Share of a round's time after which one through whom others deliver is given up."""
    given_up: ClassVar[str] = "others waited in vain"
    """What is noted for one that was given up."""

    def __init__(self, specification: TaskSpecification) -> None:
        self.specification = specification

    # --- the task ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises BadTask when the task could not be worked on."""
        lines = len(self.specification.model_digests)
        if lines != 1:
            raise BadTask(f"this task needs exactly one initial model, {lines} came: upload one and name its digest")

    def check_rule(self, choice: Choice) -> None:
        """Raises BadTask when the server does not see what the task's rule works on."""

    # --- opening a round ---------------------------------------------------------------------------------------------

    def planned_again(self, roster: Roster, chosen: Sequence[str], left: Collection[str]) -> list[str]:
        """Of those chosen, whom a round that opens again is planned for; `left` were left behind by one lost."""
        return list(chosen)

    def starts_anew(self, state: ParticipationState | None) -> bool:
        """Whether a device in this state, planned for again, gets new work; None = it was not in the round."""
        return state is not ParticipationState.DELIVERED

    def is_quoted(self, seat: topology.Seat) -> bool:
        """Whether a seat is offered a price."""
        return True

    def ties(self, seat: topology.Seat, seats: Mapping[str, topology.Seat]) -> list[Tie]:
        """With whom the device of a seat exchanges letters."""
        return []

    def parameters(self, offer: pricing.Offer) -> str:
        """What a device is told of the task's parameters; where it sells, with its own offer under "offer"."""
        if not self.sells:
            return self.specification.parameters_json
        own: dict[str, Any] = {"expected": offer.expected, "most_microcredits": offer.most_microcredits}
        if offer.HasField("terms"):
            told = offer.terms
            own |= {name: getattr(told, name) for name in ("others_variance", "variance_low", "variance_high")}
            own |= {"trust": list(told.trust), "hidden": list(told.hidden)}
        return json.dumps({**self.specification.parameters, "offer": own})

    def heaviest(self, plan: topology.Plan, samples: Mapping[str, int]) -> float:
        """The largest weight an update of this plan can carry; the round's sums leave room for it."""
        return max(float(max(samples.values(), default=1)), *(seat.weight for seat in plan.seats), 1.0)

    # --- deliveries --------------------------------------------------------------------------------------------------

    def check_delivery(self, roster: Roster, delivery: Delivery) -> None:
        """Refuses a delivery in a form or with a weight that is not the device's to give."""
        if delivery.form is not self.form:
            raise BadUpdate(f"this task takes deliveries of the form {self.form}, not {delivery.form}")
        samples = roster.samples.get(delivery.device_id, 0)
        if delivery.weight > samples and delivery.form is Form.MEAN:
            raise BadUpdate(f"weight {delivery.weight} is above the {samples} samples the device enrolled with")

    def letter_first(self, roster: Roster, delivery: Delivery) -> str:
        """Whose letter box must hold this device's letter before its delivery counts; empty = nobody's."""
        return ""

    def inspect(self, update: Update) -> dict[str, float]:
        """Refuses an update by its content; what the platform measured of it, kept beside the device's metrics."""
        return {}

    def begin_sum(self, layout: Layout, scale: int, participants: int) -> Accumulator:
        """What the updates of a model line are combined in."""
        return Accumulator(layout, scale, participants)

    # --- the open round ----------------------------------------------------------------------------------------------

    def via(self, items: Mapping[str, pb.WorkItem]) -> dict[str, str]:
        """Through whom each device's work reaches the platform, for those that do not deliver it themselves."""
        return {}

    def muster(self, everybody: Sequence[Participation], attempt: int) -> Roster:
        """Everybody in a round, from the books."""
        items = {p.device_id: pb.WorkItem.FromString(p.work) for p in everybody}
        states = {p.device_id: p.state for p in everybody}
        roster = Roster(items, states, {p.device_id: p.samples for p in everybody}, attempt, self.via(items))
        for p in everybody:
            if p.state is ParticipationState.DELIVERED:
                roster.hear(p.device_id, p.members)
        return roster

    def state_of(self, roster: Roster, device_id: str) -> ParticipationState:
        """What a device's state amounts to."""
        return roster.states[device_id]

    def visible(self, roster: Roster) -> list[str]:
        """Whose deliveries the server sees the content of, which is what the task's rule works on."""
        return [device for device, state in roster.states.items() if state is ParticipationState.DELIVERED]

    def lost(self, roster: Roster, *, overdue: bool, unreachable: Collection[str]) -> dict[str, list[str]]:
        """Devices that will not deliver, each with those it leaves behind, for whom the round opens again."""
        return {}

    def quorum(self, quorum: int, states: Sequence[ParticipationState]) -> int:
        """How many must deliver, of a round that was opened with `quorum` and has come to `states`."""
        return quorum

    # --- closing -----------------------------------------------------------------------------------------------------

    def verdicts(self, roster: Roster, everybody: Sequence[Participation]) -> list[Participation]:
        """Everybody as the round ends for them."""
        return list(everybody)

    def findings(self, everybody: Sequence[Participation], sums: Mapping[int, Accumulator]) -> dict[str, float]:
        """What the round found besides models, as figures."""
        return {}

    def suspicious(self, everybody: Sequence[Participation], elements: int) -> dict[str, str]:
        """Why each delivered update that stands out does so, for people to look at."""
        return {}

    # --- settling ----------------------------------------------------------------------------------------------------

    def witnesses(self, everybody: Sequence[Participation], number: int) -> list[tuple[str, str]]:
        """Pairs (a, b), a < b, whose conduct in the round is recorded."""
        judged = [p.device_id for p in everybody if p.state in JUDGED]
        return witness_pairs(judged, self.specification.seed, number)

    def sold(self, participation: Participation) -> float:
        """The budget or variance a device is paid for."""
        return participation.budget

    def plans_paid(self, everybody: Sequence[Participation]) -> set[int]:
        """Versions of the plans that must be known to say what is paid."""
        return set()

    def payoffs(self, everybody: Sequence[Participation], plans: Mapping[int, topology.Plan]) -> pricing.Payoffs | None:
        """The clusters that pricing divides payoffs in; None when there are none."""
        return None
