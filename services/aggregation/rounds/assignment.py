"""Build work items from a plan, a quote and the registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coterie.records.enums import ParticipationState, Role
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from coterie_api.topology.v1 import topology_pb2 as topology
from coterie_api.trust.v1 import trust_pb2 as trust
from services.aggregation.domain.records import Model, Participation, Round, Task
from services.aggregation.strategies import strategy_for
from services.aggregation.strategies.roster import Peer
from services.kit.rpc.enums import number, word

HEADER_ROOM_BYTES = 65_536


def make_items(
    task: Task,
    round_: Round,
    plan: topology.Plan,
    quote: pricing.Quote,
    devices: Mapping[str, trust.Device],
    trust_weight: Mapping[str, float],
    models: Sequence[Model],
    previous: Sequence[Model],
) -> dict[str, pb.WorkItem]:
    """Build a work item for every assignment of the plan."""
    strategy = strategy_for(task.specification)
    offers = {offer.device_id: offer for offer in quote.offers}
    assignments = {
        assignment.device_id: assignment for assignment in plan.assignments if assignment.device_id in devices
    }
    items, training = {}, strategy.terms.training_json(round_)
    for device_id, assignment in assignments.items():
        # A device without a quote now may have had an offer before the round was replanned.
        offer = offers.get(device_id, pricing.Offer()) if strategy.round_plan.is_quoted(assignment) else pricing.Offer()
        items[device_id] = _item(task, round_, assignment, offer, models, previous)
        items[device_id].training_json = training
        items[device_id].parameters.CopyFrom(strategy.round_plan.work_parameters(offer))
        items[device_id].trust_weight = trust_weight.get(device_id, 1.0)
        items[device_id].peers.extend(_peers(strategy.round_plan.peers(assignment, assignments), devices))
    return items


def _item(
    task: Task,
    round_: Round,
    assignment: topology.Assignment,
    offer: pricing.Offer,
    models: Sequence[Model],
    previous: Sequence[Model],
) -> pb.WorkItem:
    spec = task.specification
    return pb.WorkItem(
        task_id=task.id,
        round=round_.number,
        attempt=round_.attempt,
        role=assignment.role,
        model_digests=[model.digest for model in models],
        model_lines=[model.line for model in models],
        previous_digests=[model.digest for model in previous],
        deadline_at=round_.deadline_at,
        plan_version=round_.plan_version,
        noise_multiplier=assignment.noise_multiplier,
        noised=assignment.noised,
        batch_size=assignment.batch_size,
        self_weight=assignment.self_weight or assignment.weight,
        price_microcredits=offer.price_microcredits,
        external_risk=offer.external_risk,
        base_microcredits=offer.base_microcredits,
        slope_microcredits=offer.slope_microcredits,
        privacy_unit=number(spec.privacy_unit),
        topology=spec.topology,
        privacy=spec.privacy,
        incentive=spec.incentive,
        max_update_bytes=max(model.size_bytes for model in models) + HEADER_ROOM_BYTES,
        rounds=spec.rounds,
        cell=assignment.cell,
        solo_weight=assignment.solo_weight,
    )


def _peers(peers: Sequence[Peer], devices: Mapping[str, trust.Device]) -> list[pb.Peer]:
    """Return the peers that take part in the round, with their keys."""
    return [
        pb.Peer(
            signing_key=devices[peer.device_id].signing_key,
            sealing_key=devices[peer.device_id].sealing_key,
            **peer._asdict() | {"role": number(peer.role)},
        )
        for peer in peers
        if peer.device_id in devices
    ]


def participations_of(
    round_: Round,
    plan: topology.Plan,
    items: Mapping[str, pb.WorkItem],
    devices: Mapping[str, trust.Device],
    samples: Mapping[str, int],
) -> list[Participation]:
    """Return the participations of an opening round, with their work items."""
    roles = {assignment.device_id: word(Role, assignment.role) for assignment in plan.assignments}
    return [
        Participation(
            task_id=round_.task_id,
            round=round_.number,
            device_id=device_id,
            owner_id=devices[device_id].owner_id,
            role=roles[device_id],
            state=ParticipationState.IDLE if roles[device_id] is Role.IDLE else ParticipationState.ASSIGNED,
            samples=samples[device_id],
            work=item.SerializeToString(),
        )
        for device_id, item in items.items()
    ]
