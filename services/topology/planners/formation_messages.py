"""Messages of a formation: assignments with the reason for each, and the details of a plan."""

from __future__ import annotations

import math
from typing import Any

from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as pb
from services.topology.domain.coalition import Game, evaluate, preference
from services.topology.domain.formation import Cluster, Formation, Transfer
from services.topology.domain.quality import Floats
from services.topology.domain.stability import BlockingMove

MOST_TRANSFERS = 500
"""Transfers listed in a plan's details; the rest is counted."""
_EXPLAINED_UP_TO = 300
"""In larger plans the way not taken is left unexplained: it costs an evaluation per device and neighbouring cluster."""


def groups_of(plan: pb.Plan) -> list[list[str]]:
    """Clusters of a plan by device id, those that took no part in it included."""
    groups: dict[str, list[str]] = {}
    for assignment in plan.assignments:
        groups.setdefault(assignment.head_device_id or assignment.device_id, []).append(assignment.device_id)
    seated = {assignment.device_id for assignment in plan.assignments}
    absent = plan.cluster_details.absent
    return [*groups.values(), *(rest for group in absent if (rest := [d for d in group.items if d not in seated]))]


def assignments(
    game: Game, formation: Formation, ids: list[str], noise: Floats, quality: Floats, solo_quality: Floats
) -> list[pb.Assignment]:
    """An assignment for every device, in order of id."""
    made: dict[int, pb.Assignment] = {}
    number = 0
    for cluster in formation.clusters:
        together = len(cluster.members) > 1
        for device in cluster.members:
            made[device] = pb.Assignment(
                device_id=ids[device],
                role=_role(together=together, is_head=device == cluster.head),
                group=number if together else -1,
                block=-1,
                head_device_id=ids[cluster.head] if together else "",
                noise_multiplier=float(noise[device]),
                weight=float(quality[device]),
                payoff=float(formation.payoff[device]),
                solo_payoff=_alone(game, device),
                solo_weight=float(solo_quality[device]),
                because=_because(game, formation, ids=ids, cluster=cluster, device=device, noise=float(noise[device])),
            )
        number += together
    return [made[device] for device in range(len(ids))]


def _role(*, together: bool, is_head: bool) -> words.Role.ValueType:
    if not together:
        return words.ROLE_SOLO
    return words.ROLE_HEAD if is_head else words.ROLE_MEMBER


def game_parameters(game: Game) -> pb.GameParameters:
    """What the plan was played for."""
    played = game.game_parameters
    return pb.GameParameters(price=played.price, member_cost=played.member_cost, head_reward=played.head_reward)


def details(
    game: Game,
    formation: Formation,
    ids: list[str],
    *,
    retained: bool,
    absent: list[list[str]],
    fit: pb.QualityFit | None = None,
) -> pb.ClusterDetails:
    """What the planner found: the checker's word on stability, how it came about, the game_parameters."""
    alone = [_alone(game, device) for device in range(game.size)]
    blocking = formation.blocking
    return pb.ClusterDetails(
        stable=formation.stable,
        converged=formation.converged,
        retained=retained,
        iterations=formation.iterations,
        restarts=formation.restarts,
        searched=formation.searched,
        clusters=[
            pb.FormedCluster(
                head=ids[cluster.head],
                members=[ids[member] for member in cluster.members],
                value=math.fsum(float(formation.payoff[member]) for member in cluster.members),
            )
            for cluster in formation.clusters
        ],
        transfers=[
            pb.Transfer(iteration=transfer.iteration, **_move(transfer, ids))
            for transfer in formation.transfers[:MOST_TRANSFERS]
        ],
        transfers_made=len(formation.transfers),
        blocking=None if blocking is None else pb.Move(**_move(blocking, ids)),
        mean_payoff=float(formation.payoff.mean()),
        mean_solo_payoff=math.fsum(alone) / len(alone),
        game_parameters=game_parameters(game),
        solo_payoffs=dict(zip(ids, alone, strict=True)),
        absent=[pb.DeviceList(items=group) for group in absent],
        fit=fit,
    )


def _move(move: Transfer | BlockingMove, ids: list[str]) -> dict[str, Any]:
    """Fields of a move; a device that was a stranger to its head gains without bound, which JSON cannot represent."""
    return {
        "device": ids[move.device],
        "from": [ids[other] for other in move.source],
        "to": [ids[other] for other in move.target],
        "gain": move.gain if math.isfinite(move.gain) else None,
    }


def _because(game: Game, formation: Formation, ids: list[str], cluster: Cluster, device: int, noise: float) -> str:
    payoff = float(formation.payoff[device])
    other = _elsewhere(game, formation, ids=ids, cluster=cluster, device=device, payoff=payoff)
    if len(cluster.members) == 1:
        return f"alone, worth {payoff:.2f}, with noise {noise:.3g}; {other}"
    gain = payoff - _alone(game, device)
    if device == cluster.head:
        place = f"head of its cluster of {len(cluster.members)}: it knows most of it"
    else:
        alpha = game.trust_row(device)[cluster.head]
        how = "sends it raw" if noise == 0 else f"sends it with noise {noise:.3g}"
        place = f"trusts the head {alpha:.2f}, {how}"
    return f"{place}; gets {payoff:.2f}, {gain:.2f} more than alone; {other}"


def _elsewhere(game: Game, formation: Formation, ids: list[str], cluster: Cluster, device: int, payoff: float) -> str:
    """Why the device is in no other cluster: its members are strangers, refuse it, or it would earn less."""
    if game.size > _EXPLAINED_UP_TO:
        return "no other cluster pays it more" if formation.stable else "see the blocking move for what is left"
    neighbours = set(game.graph.neighbours(device)[0].tolist())
    others = [c for c in formation.clusters if c is not cluster and neighbours.intersection(c.members)]
    if not others:
        return "no other cluster has anybody it has dealt with"
    worth, best = max(((preference(game, device, c.members), c) for c in others), key=lambda pair: pair[0])
    if worth == -math.inf:
        return "the other clusters it knows would lose by taking it"
    verb = "only pays" if worth <= payoff else "would pay"
    return f"{ids[best.head]}'s cluster {verb} {worth:.2f}"


def _alone(game: Game, device: int) -> float:
    return float(evaluate(game, [device]).payoff[0])
