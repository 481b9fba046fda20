"""What a strategy decides on the server, and what it decides unless it says otherwise: as a star does.

A strategy is asked in the order of a round's life: is the task sound; who is planned for, quoted and told what; which
delivery is taken, with what weight and after which look at its content; what a device's state amounts to, who is given
up, how many are enough; what everybody ends the round as; who witnessed whom, and who is paid for what. It does no
input or output: what it needs to know it is given.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from coterie.learning.models import is_statistic
from coterie.privacy.adaptive import WITHIN, farthest_share, joint_norm
from coterie.records.enums import Form, ParticipationState
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.parameters.v1.parameters_pb2 import NumberList, OfferParameters, TaskParameters
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.domain.accumulator import Accumulator
from services.aggregation.domain.bounds import Bounds
from services.aggregation.domain.layout import Layout
from services.aggregation.domain.plausibility import noised_norm, usual_norm
from services.aggregation.domain.records import Delivery, Participation
from services.aggregation.domain.rounds import JUDGED, witness_pairs
from services.aggregation.domain.rules.choice import Choice, choose
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.errors import BadTask, BadUpdate, MetricsNotTaken, RoundOver
from services.aggregation.strategies.clipping import Clipping
from services.aggregation.strategies.roster import Roster, Tie, Update
from services.aggregation.strategies.summing import Summing
from services.kit.rpc.proto_json import parameters_of

VISIBLE = (Form.MEAN, Form.SUM)
"""Forms of delivery whose content the platform sees."""
SOME_NORM = 1.0
"""What is kept of a norm that is nobody's business: that it was not zero."""
SHORTER = (
    "lower the learning rate or scale the update down to that; where honest devices need longer ones, the publisher "
    "raises parameters.bounds.norm_times"
)
"""What to do about an update that is too long."""


class Strategy(Clipping, Summing):
    """One strategy, for one task."""

    form: ClassVar[Form] = Form.MEAN
    """The form of delivery it takes."""
    sells: ClassVar[bool] = False
    """Whether devices are told their offer, to decide by it."""
    judges: ClassVar[bool] = False
    """Whether some devices judge others, who may object."""
    patience: ClassVar[float] = 1.0
    """Share of a round's time after which one through whom others deliver is given up."""
    is_valued: ClassVar[bool] = False
    """Whether a round is settled only when its publisher's evaluator has valued it."""
    learns_quality: bool = False
    """Whether its plans go by a quality model fitted to what the publisher measured of its earlier tasks."""
    in_step: ClassVar[str] = ""
    """Why its devices must work on the same round together; empty = each may work at its own pace."""
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

    def check_model(self, layout: Layout) -> None:
        """Raises BadTask when the task cannot start from a model of this layout."""
        measured = next((tensor.name for tensor in layout.tensors if is_statistic(tensor.name)), "")
        if measured and self.clips:
            raise BadTask(
                f"the model holds running statistics ({measured}), which noise would spoil and which tell of the data "
                'without it; leave them out with model_bytes(module, exchange="trainable"), or use group normalisation'
            )

    def check_rule(self, choice: Choice) -> None:
        """Raises BadTask when the server does not see what the task's rule works on."""

    @property
    def bounds(self) -> Bounds:
        """How far the task believes its devices."""
        return Bounds.of(self.specification.parameters)

    def check_pace(self) -> None:
        """Raises BadTask when the task cannot be asynchronous as it asks to be."""
        if self.in_step:
            raise BadTask(f"pace asynchronous: {self.in_step}; leave the pace out, or choose the preset fedavg")
        if self.specification.draws:
            raise BadTask(
                "pace asynchronous: every enrolled device works when it is ready, none is drawn by lot; leave "
                "max_devices and fraction out (parameters.pace.buffer says how many updates make a step)"
            )

    @property
    def counts(self) -> int:
        """Elements of a secure sum beside those of the model."""
        return int(self.adaptive_clip is not None)

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

    def parameters(self, offer: pricing.Offer) -> TaskParameters:
        """What a device is told of the task's parameters; where it sells, with its own offer under "offer"."""
        told = parameters_of(self.specification.parameters_json)
        if not self.sells:
            return told
        told.offer.CopyFrom(OfferParameters(expected=offer.expected, most_microcredits=offer.most_microcredits))
        if offer.HasField("terms"):
            terms = OfferParameters(
                others_variance=offer.terms.others_variance,
                variance_low=offer.terms.variance_low,
                variance_high=offer.terms.variance_high,
                trust=NumberList(items=offer.terms.trust),
                hidden=NumberList(items=offer.terms.hidden),
            )
            told.offer.MergeFrom(terms)
        return told

    def heaviest(self, plan: topology.Plan, counted: Mapping[str, float]) -> float:
        """The largest weight an update of this plan can carry; the round's sums leave room for it."""
        return max(float(max(counted.values(), default=1)), *(seat.weight for seat in plan.seats), 1.0)

    def heaviest_masked(self, plan: topology.Plan, counted: Mapping[str, float], *, noised: bool) -> float:
        """The largest weight of a masked update."""
        return 1.0 if noised else self.heaviest(plan, counted)

    # --- deliveries --------------------------------------------------------------------------------------------------

    def check_delivery(self, roster: Roster, delivery: Delivery) -> None:
        """Refuses a delivery in a form or with a weight that is not the device's to give."""
        if delivery.form is not self.form:
            raise BadUpdate(f"this task takes deliveries of the form {self.form}, not {delivery.form}")
        samples = roster.samples.get(delivery.device_id, 0)
        if delivery.weight > samples and delivery.form is Form.MEAN:
            raise BadUpdate(f"weight {delivery.weight} is above the {samples} samples the device enrolled with")

    def check_figures(self, metrics: Mapping[str, float], *, is_public: bool) -> None:
        """Refuses figures that may have been computed on private data, where noise is promised: it covers none."""
        privacy = self.specification.privacy
        if privacy != "none" and metrics and not is_public:
            raise MetricsNotTaken(
                f"the task's privacy is {privacy}, and exact figures of a device's data would go beside its noise: "
                "leave the metrics out, or measure them on samples the owner calls public (public_test_data=True) "
                "and report public_metrics"
            )

    def misfit(self, roster: Roster, message: str) -> BadUpdate | RoundOver:
        """The refusal of a delivery that is not what its device was told: in a round that was planned anew it may have
        been right before, so its device is not blamed and asks for its present work."""
        return BadUpdate(message) if roster.attempt == 1 else RoundOver(f"{message}; ask for work again")

    def check_count(self, roster: Roster, delivery: Delivery) -> dict[str, float]:
        """A delivery's other figures; refuses a count beyond what a bit and the promised noise make.

        Nobody moves the clip norm by shouting. The count is noised and charged with the update, so it needs no word
        that it is public.
        """
        others = {name: value for name, value in delivery.metrics.items() if name != WITHIN}
        if len(others) == len(delivery.metrics):
            return others
        within, noise = delivery.metrics[WITHIN], roster.items[delivery.device_id].noise_multiplier
        if self.adaptive_clip is None:
            raise MetricsNotTaken(f"{WITHIN} is taken where the clip norm adapts (privacy.clip_quantile); leave it out")
        if abs(within - 0.5) > farthest_share(noise):
            raise BadUpdate(f"{WITHIN} is {within:.4g}, which is more than a bit and the promised noise make")
        return others

    def weigh(self, roster: Roster, delivery: Delivery) -> float:
        """What a delivery counts in the round: the samples it speaks for, as far as they count."""
        return min(delivery.weight, roster.counted[delivery.device_id])

    def weigh_together(self, roster: Roster, delivered: Sequence[Participation]) -> dict[str, float]:
        """What deliveries count that make a step by themselves, so that none has too large a share of these."""
        devices = [p.device_id for p in delivered]
        samples, owners = {d: roster.samples[d] for d in devices}, {d: roster.owners[d] for d in devices}
        counted = self.bounds.counted(samples, owners)
        return {p.device_id: min(p.weight, counted[p.device_id]) for p in delivered}

    def letters_first(self, roster: Roster, delivery: Delivery) -> tuple[str, Collection[str]]:
        """Whose letter box must hold letters before a delivery counts, and from whom."""
        return "", ()

    def inspect(self, update: Update) -> dict[str, float]:
        """Refuses an update by its content; what the platform measured of it, kept beside the device's metrics."""
        if self.earns and update.norm == 0.0:
            raise BadUpdate("the update is zero everywhere; train before you deliver")
        most = self.largest_norm(update)
        if update.norm > most:
            raise BadUpdate(
                f"the update's norm of {update.norm:.4g} is beyond the {most:.4g} that {self.allowing(update)}"
            )
        if not self.clips and update.norm > update.bound:
            raise BadUpdate(
                f"the update's norm of {update.norm:.4g} is beyond {update.bound:.4g}, {self.bounds.norm_times:g} "
                f"times what was usual in the last round; {SHORTER}"
            )
        return {}

    def largest_norm(self, update: Update) -> float:
        """The norm an honest update stays within: that of clipping and the noise the plan asks for."""
        if not self.clips:
            return math.inf
        clip_norm = self.clip_norm
        if self.adaptive_clip is not None:
            clip_norm = joint_norm(float(json.loads(update.item.training_json)["clip_norm"]))
        return noised_norm(clip_norm, update.item.noise_multiplier, update.elements)

    def allowing(self, update: Update) -> str:
        """What allows no larger norm, for people."""
        return f"clipping to {self.clip_norm:g} and the promised noise allow"

    @property
    def earns(self) -> bool:
        """Whether a delivery earns something, so that doing nothing, or what another did, must not count."""
        return self.specification.incentive != "none"

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
        samples, owners = {p.device_id: p.samples for p in everybody}, {p.device_id: p.owner_id for p in everybody}
        counted = self.bounds.counted(samples, owners)
        roster = Roster(items, states, samples, attempt, self.via(items), counted=counted, owners=owners)
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

    def refused(self, everybody: Sequence[Participation], bounds: Mapping[str, float]) -> dict[str, str]:
        """Why delivered updates do not count after all, now that all are there: no matter who came first.

        One is too long for what is usual in this round, where no earlier one told (`bounds`), unless a robust rule is
        there to judge it; or, where something is earned, it has the very bytes of another's. Nobody sees another's
        update, so the same bytes came by agreement: all who sent them go without.
        """
        by_norm = not self.clips and choose(self.specification.rule, self.specification.parameters_json).is_bendable
        seen = [p for p in everybody if p.state is ParticipationState.DELIVERED and p.form in VISIBLE]
        found: dict[str, str] = {}
        for line in {p.model_index for p in seen} if by_norm else ():
            there = [p for p in seen if p.model_index == line]
            times = self.bounds.norm_times
            most = bounds.get(str(line)) or times * usual_norm(p.norm for p in there)
            found |= {
                p.device_id: f"its norm of {p.norm:.4g} is beyond {most:.4g}, {times:g} times what is usual; {SHORTER}"
                for p in there
                if p.norm > most
            }
        holders = Counter(p.digest for p in seen) if self.earns else Counter()
        copied = "its update is, to the last byte, that of another device; train on your own data"
        return found | {p.device_id: copied for p in seen if holders[p.digest] > 1}

    def usual(self, everybody: Sequence[Participation]) -> dict[str, float]:
        """The longest updates the next round takes, by model line, from those accepted in this one."""
        norms: dict[str, list[float]] = {}
        for p in everybody if not self.clips else ():
            if p.state is ParticipationState.DELIVERED and p.norm > 0.0:
                norms.setdefault(str(p.model_index), []).append(p.norm)
        return {line: self.bounds.norm_times * usual_norm(told) for line, told in norms.items()}

    def verdicts(self, roster: Roster, everybody: Sequence[Participation]) -> list[Participation]:
        """Everybody as the round ends for them."""
        return list(everybody)

    def findings(self, everybody: Sequence[Participation], sums: Mapping[int, Accumulator]) -> dict[str, float]:
        """What the round found besides models, as figures."""
        return {}

    def warnings(self, figures: Mapping[str, float]) -> list[str]:
        """Conditions under which learning is known to converge that a round's figures do not meet, for people."""
        return []

    def suspicious(self, everybody: Sequence[Participation], elements: int) -> dict[str, str]:
        """Why each delivered update that stands out does so, for people to look at."""
        return {}

    # --- settling ----------------------------------------------------------------------------------------------------

    def witnesses(self, everybody: Sequence[Participation], number: int) -> list[tuple[str, str]]:
        """Pairs (a, b), a < b, whose conduct in the round is recorded."""
        judged = [p.device_id for p in everybody if p.state in JUDGED]
        return witness_pairs(judged, self.specification.seed, number)

    def proved(self, everybody: Sequence[Participation]) -> set[str]:
        """Devices whose work the platform itself saw pass the strategy's checks, and not merely arrive.

        Zeros show no work, the very bytes of another's no work of one's own, and of masked words nothing is seen. A
        member's report counts as far as its head's sum has it: then both ends say so.
        """
        delivered = [p for p in everybody if p.state is ParticipationState.DELIVERED]
        holders = Counter(p.digest for p in delivered if p.form in VISIBLE)
        return {
            p.device_id
            for p in delivered
            if p.form is Form.REPORT or (p.form in VISIBLE and p.norm > 0.0 and holders[p.digest] == 1)
        }

    def sold(self, participation: Participation) -> float:
        """The budget or variance a device is paid for."""
        return participation.budget

    def quality(self, participation: Participation, values: Mapping[str, float]) -> float:
        """What a device's share of a pot goes by; `values` are contributions, where the strategy is valued."""
        return participation.weight

    def plans_paid(self, everybody: Sequence[Participation]) -> set[int]:
        """Versions of the plans that must be known to say what is paid."""
        return set()

    def payoffs(self, everybody: Sequence[Participation], plans: Mapping[int, topology.Plan]) -> pricing.Payoffs | None:
        """The clusters that pricing divides payoffs in; None when there are none."""
        return None
