"""From a plan, a quote and the registry to what each device is told to do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from coterie_api.topology.v1 import topology_pb2 as topology
from coterie_api.trust.v1 import trust_pb2 as trust
from services.aggregation.domain.accumulator import choose_scale
from services.aggregation.domain.records import Model, Round, Task
from services.aggregation.domain.tasks import TaskSpecification

HEADER_ROOM_BYTES = 65_536


def make_items(
    task: Task,
    round_: Round,
    plan: topology.Plan,
    quote: pricing.Quote,
    devices: Mapping[str, trust.Device],
    models: Sequence[Model],
    previous: Sequence[Model],
) -> dict[str, pb.WorkItem]:
    """One work item for every seat of the plan."""
    offers = {offer.device_id: offer for offer in quote.offers}
    seats = {seat.device_id: seat for seat in plan.seats if seat.device_id in devices}
    return {
        device_id: _with_peers(
            _item(task, round_, seat, _offer(task.specification, seat, offers), models, previous), seat, seats, devices
        )
        for device_id, seat in seats.items()
    }


def sells(spec: TaskSpecification, seat: topology.Seat) -> bool:
    """Whether a seat sells privacy: in clusters only one that noises its own update, elsewhere every one."""
    return spec.topology != "clusters" or spec.incentive != "stackelberg" or seat.noise_multiplier > 0.0


def _offer(spec: TaskSpecification, seat: topology.Seat, offers: Mapping[str, pricing.Offer]) -> pricing.Offer:
    """A seat's offer; none for one that sells nothing, though it may have had one before the round was planned anew."""
    return offers.get(seat.device_id, pricing.Offer()) if sells(spec, seat) else pricing.Offer()


def _item(
    task: Task,
    round_: Round,
    seat: topology.Seat,
    offer: pricing.Offer,
    models: Sequence[Model],
    previous: Sequence[Model],
) -> pb.WorkItem:
    spec = task.specification
    return pb.WorkItem(
        task_id=task.id,
        round=round_.number,
        attempt=round_.attempt,
        role=seat.role,
        model_digests=[model.digest for model in models],
        model_lines=[model.line for model in models],
        previous_digests=[model.digest for model in previous],
        deadline_at=round_.deadline_at,
        plan_version=round_.plan_version,
        noise_multiplier=seat.noise_multiplier,
        noised=seat.noised,
        batch_size=seat.batch_size,
        self_weight=seat.self_weight or seat.weight,
        price_microcredits=offer.price_microcredits,
        external_risk=offer.external_risk,
        base_microcredits=offer.base_microcredits,
        slope_microcredits=offer.slope_microcredits,
        training_json=spec.training_json,
        parameters_json=_parameters(spec, offer),
        privacy_unit=spec.privacy_unit,
        topology=spec.topology,
        privacy=spec.privacy,
        incentive=spec.incentive,
        max_update_bytes=max(model.size_bytes for model in models) + HEADER_ROOM_BYTES,
        rounds=spec.rounds,
    )


def _parameters(spec: TaskSpecification, offer: pricing.Offer) -> str:
    """The task's parameters; where privacy is sold with the rest of the device's own offer under "offer"."""
    if spec.incentive not in ("stackelberg", "correlated"):
        return spec.parameters_json
    own = {"expected": offer.expected, "most_microcredits": offer.most_microcredits}
    return json.dumps({**spec.parameters, "offer": own | json.loads(offer.terms_json or "{}")})


def _with_peers(
    item: pb.WorkItem,
    seat: topology.Seat,
    seats: Mapping[str, topology.Seat],
    devices: Mapping[str, trust.Device],
) -> pb.WorkItem:
    """Adds whom the device exchanges letters with: its head, its members or its neighbours, with their keys."""
    if seat.role == "member":
        others = [(seat.head_device_id, "head", 0.0, True, 0.0)]
    elif seat.role == "head":
        others = [
            (other.device_id, "member", other.weight, other.noise_multiplier == 0.0, 0.0)
            for other in seats.values()
            if other.head_device_id == seat.device_id and other.device_id != seat.device_id
        ]
    else:
        others = [(n.device_id, "peer", n.weight, n.trusted, n.link_seconds) for n in seat.neighbours]
    item.peers.extend(
        pb.Peer(
            device_id=device_id,
            role=role,
            signing_key=devices[device_id].signing_key,
            sealing_key=devices[device_id].sealing_key,
            weight=weight,
            trusted=trusted,
            link_seconds=seconds,
        )
        for device_id, role, weight, trusted, seconds in others
        if device_id in devices
    )
    return item


def heads_of(items: Mapping[str, pb.WorkItem]) -> dict[str, str]:
    """The head of every member, by what each was told."""
    return {
        device_id: peer.device_id
        for device_id, item in items.items()
        if item.role == "member"
        for peer in item.peers
        if peer.role == "head"
    }


def heaviest_weight(plan: topology.Plan, samples: Mapping[str, int]) -> float:
    """The largest weight an update of this plan can carry: samples, or the total quality of a cluster.

    Clusters may merge when a head is lost in the middle of a round, so all of them together are allowed for.
    """
    heaviest = float(max(samples.values(), default=1))
    together = any(seat.role == "head" for seat in plan.seats)
    qualities = [seat.weight for seat in plan.seats]
    return max(heaviest, sum(qualities) if together else max(qualities, default=0.0), 1.0)


def scale_for(plan: topology.Plan, samples: Mapping[str, int]) -> int:
    """Fixed-point scale of a round's sums."""
    return choose_scale(len(plan.seats), heaviest_weight(plan, samples))
