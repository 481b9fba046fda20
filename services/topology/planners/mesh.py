"""The mesh: every device exchanges with a few neighbours, planned by BeTTa from trust and measured times.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, §III.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any, cast

import numpy as np

from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as pb
from services.topology.domain.betta import MeshPlan, PlannedLink, Step, evaluate_links
from services.topology.domain.betta_fast import plan_soonest
from services.topology.domain.betta_network import BadMeshInput, DisconnectedSocialGraph, MeshNetwork
from services.topology.domain.mixing import Floats, NotConnected, components
from services.topology.domain.plain_links import complete_links, ring_links, social_links
from services.topology.planners.base import Sources
from services.topology.planners.betta_inputs import MeshInputs, checked_parameters, gather_inputs

MOST_BASELINE_DEVICES = 128
Pair = tuple[int, int]


class MeshPlanner:
    """Plans meshes."""

    def check(self, privacy: str, parameters: dict[str, Any]) -> dict[str, Any]:
        return checked_parameters(privacy, parameters)

    def is_slow(self, devices: int, parameters: dict[str, Any]) -> bool:
        """Always: the planner searches."""
        return True

    async def gather(self, request: pb.MakePlanRequest, sources: Sources) -> MeshInputs:
        """Trust, owners and abilities from the registry; measured links from the store."""
        return await gather_inputs(request, sources)

    @staticmethod
    def plan(request: pb.MakePlanRequest, gathered: MeshInputs, previous: pb.Plan | None) -> pb.Plan:
        """Plan by BeTTa, or keep the previous plan while it is safe and a new one would gain little.

        A first plan needs a social graph that connects all devices. Later, when a device is gone and trust no longer
        connects the rest, the parts are joined by their fastest links; both ends of such a link add noise. When devices
        came, went or lost trust, the links that still hold are kept unless a whole new plan gains `replan_gain`. Where
        the links stand, batches follow what devices have by now and how fast they are.
        """
        if previous is not None and request.keep_if_stable and _basis_of(previous) == gathered.basis:
            return previous
        bridges = _bridges(gathered, allowed=previous is not None or gathered.settings.bridge)
        if gathered.settings.plan == "social":
            return _plan_social(gathered, bridges)
        result = plan_with_bridges(gathered, bridges)
        if previous is not None and request.keep_if_stable:
            standing = _standing(previous, gathered, result)
            if standing is not None and not _is_news(previous, gathered, standing):
                return previous
            result = standing or _repair(previous, gathered, bridges, result)
        return _message(gathered, result, bridges)


def _plan_social(given: MeshInputs, bridges: list[Pair]) -> pb.Plan:
    """Every trusted link, and the bridges between parts that trust does not connect."""
    links = sorted({*social_links(given.network), *bridges})
    return _message(given, evaluate_links(given.network, given.rules, links), bridges)


def plan_with_bridges(given: MeshInputs, bridges: list[Pair]) -> MeshPlan:
    """BeTTa on the social graph and the bridges; noise wherever a link is not really trusted.

    Unlike [BETTA], which asks for a connected social graph, the bridges count as trusted while links are chosen, and
    the plan is then evaluated with the trust there is.
    """
    if not bridges:
        return plan_soonest(given.network, given.rules)
    trusted = given.network.trusted.copy()
    for i, j in bridges:
        trusted[i, j] = trusted[j, i] = True
    joined = plan_soonest(dataclasses.replace(given.network, trusted=trusted), given.rules)
    honest = evaluate_links(given.network, given.rules, joined.pairs)
    links = tuple(dataclasses.replace(x, trusted=bool(given.network.trusted[x.first, x.second])) for x in joined.links)
    return dataclasses.replace(honest, links=links, snapshots=joined.snapshots)


def _bridges(given: MeshInputs, *, allowed: bool) -> list[Pair]:
    """The fastest possible links that join the parts of the social graph; none when it is connected."""
    network = given.network
    parts = components(network.trusted & np.isfinite(network.link_seconds))
    chosen = _fastest_bridges(network, parts)
    if len(parts) > 1 and (not allowed or len(chosen) < len(parts) - 1):
        raise DisconnectedSocialGraph(_explain(given, parts, chosen))
    return chosen


def _fastest_bridges(network: MeshNetwork, parts: list[list[int]]) -> list[Pair]:
    """A shortest spanning tree over the parts, by link time; fewer pairs than parts − 1 when some cannot be reached."""
    return _fastest_links(network.link_times, parts)


def _fastest_links(link_times: Floats, parts: list[list[int]]) -> list[Pair]:
    devices = len(link_times)
    part_of = np.empty(devices, dtype=np.int64)
    for number, part in enumerate(parts):
        part_of[part] = number
    times = np.where(part_of[:, None] != part_of[None, :], link_times, np.inf)
    rows, columns = np.triu_indices(devices, 1)
    order = np.lexsort((columns, rows, times[rows, columns]))
    chosen: list[Pair] = []
    for index in order:
        i, j = int(rows[index]), int(columns[index])
        if not np.isfinite(times[i, j]) or len(chosen) == len(parts) - 1:
            break
        if part_of[i] != part_of[j]:
            part_of[part_of == part_of[j]] = part_of[i]
            chosen.append((i, j))
    return chosen


def _explain(given: MeshInputs, parts: list[list[int]], chosen: list[Pair]) -> str:
    def named(members: list[int]) -> str:
        shown = ", ".join(given.names[member] for member in members[:5])
        return "{" + shown + (f", … {len(members)} in all" if len(members) > 5 else "") + "}"

    shown = ", ".join(named(part) for part in parts[:6]) + (", …" if len(parts) > 6 else "")
    ways = ", ".join(f"{given.names[i]}–{given.names[j]}" for i, j in chosen[:6])
    settings, tie = given.settings, "being related" if given.settings.relations else "trust"
    advice = f"{tie} between {ways} would connect them" if ways else "no possible link would connect them"
    means = ['name more "relations"'] if settings.relations else []
    if settings.relations_need_trust or settings.trust_suffices or not settings.relations:
        means.append('lower the parameter "trust_threshold"')
    means.append(
        'set "bridge" to join the parts by links whose ends add noise'
        if ways
        else 'choose privacy "partial" with "bridge", so that the ends of links between strangers add noise'
    )
    remedy = ", or ".join(means)
    leaves = "leaves" if given.social.startswith("trust") else "leave"
    return (
        f"{given.social} {leaves} {len(parts)} parts, {shown}; {advice}. {remedy[0].upper()}{remedy[1:]}. Devices are "
        "strangers, too, while their owners do not have each other in their circles (coterie circle add)"
    )


# --- keeping a plan ---------------------------------------------------------------------------------------------------


def _basis_of(plan: pb.Plan) -> str:
    return plan.mesh_details.basis


def _standing(previous: pb.Plan, given: MeshInputs, chosen_plan: MeshPlan) -> MeshPlan | None:
    """The old links as things are now; None unless devices and who adds noise are the same and they are nearly as fast
    as the plan chosen_plan."""
    rows = {device_id: row for row, device_id in enumerate(given.ids)}
    if {assignment.device_id for assignment in previous.assignments} != rows.keys():
        return None
    pairs = [(rows[s.device_id], rows[n.device_id]) for s in previous.assignments for n in s.neighbours]
    try:
        standing = evaluate_links(given.network, given.rules, pairs)
    except (NotConnected, BadMeshInput):
        return None
    if {rows[assignment.device_id] for assignment in previous.assignments if assignment.noised} != set(
        standing.dp_devices
    ):
        return None
    gain = 1.0 - given.settings.replan_gain
    if chosen_plan.figures.pseudo_training_time < gain * standing.figures.pseudo_training_time:
        return None
    return _with_reasons(previous, given, standing)


def _is_news(previous: pb.Plan, given: MeshInputs, standing: MeshPlan) -> bool:
    """Whether old links that stand are trusted otherwise than they were, or a batch has changed by `replan_gain`."""
    held = {assignment.device_id: assignment.batch_size for assignment in previous.assignments}
    batches = np.array([held[device_id] for device_id in given.ids])
    if (np.abs(standing.batch_sizes - batches) > given.settings.replan_gain * batches).any():
        return True
    trusted_before = {
        frozenset((s.device_id, n.device_id)): n.trusted for s in previous.assignments for n in s.neighbours
    }
    return any(
        trusted_before[frozenset((given.ids[x.first], given.ids[x.second]))] != x.trusted for x in standing.links
    )


def _with_reasons(previous: pb.Plan, given: MeshInputs, plan: MeshPlan) -> MeshPlan:
    """The plan with those of its links that it has from the previous one in their order and with their reasons."""
    left = {frozenset((given.ids[link.first], given.ids[link.second])): link for link in plan.links}
    retained = []
    for old in previous.mesh_details.links:
        link = left.pop(frozenset(old.between), None)
        if link is not None:
            score = old.score if old.HasField("score") else None
            retained.append(dataclasses.replace(link, step=cast(Step, old.step), score=score))
    return dataclasses.replace(plan, links=(*retained, *left.values()))


def _repair(previous: pb.Plan, given: MeshInputs, bridges: list[Pair], chosen_plan: MeshPlan) -> MeshPlan:
    """Repair the previous plan, unless a whole new one gains `replan_gain` or a repair is not possible.

    Links stay whose ends both take part and trust each other at least as before. The fastest trusted links or bridges
    join the remaining parts and new devices.
    """
    network, rows = given.network, {device_id: row for row, device_id in enumerate(given.ids)}
    adjacency = np.zeros((network.devices, network.devices), dtype=bool)
    for assignment in previous.assignments:
        for other in assignment.neighbours:
            if assignment.device_id in rows and other.device_id in rows:
                i, j = rows[assignment.device_id], rows[other.device_id]
                adjacency[i, j] = np.isfinite(network.link_seconds[i, j]) and network.trusted[i, j] >= other.trusted
    adjacency &= adjacency.T
    allowed = network.trusted.copy()
    for i, j in bridges:
        allowed[i, j] = allowed[j, i] = True
    parts = components(adjacency)
    joints = _fastest_links(np.where(allowed, network.link_times, np.inf), parts)
    for i, j in joints:
        adjacency[i, j] = adjacency[j, i] = True
    cap = given.rules.max_degree
    if len(joints) < len(parts) - 1 or (cap is not None and adjacency.sum(axis=1).max(initial=0) > cap):
        return chosen_plan
    repaired = evaluate_links(network, given.rules, [(int(i), int(j)) for i, j in np.argwhere(np.triu(adjacency))])
    gain = 1.0 - given.settings.replan_gain
    worth = chosen_plan.figures.pseudo_training_time >= gain * repaired.figures.pseudo_training_time
    return _with_reasons(previous, given, repaired) if worth else chosen_plan


# --- the plan as a message --------------------------------------------------------------------------------------------


def _message(given: MeshInputs, chosen_plan: MeshPlan, bridges: list[Pair]) -> pb.Plan:
    assignments = [_assignment(given, chosen_plan, device) for device in range(given.network.devices)]
    details = _details(given, chosen_plan, bridges)
    return pb.Plan(assignments=assignments, round_seconds=chosen_plan.figures.local_iterate, mesh_details=details)


def _assignment(given: MeshInputs, chosen_plan: MeshPlan, device: int) -> pb.Assignment:
    mixing = chosen_plan.figures.mixing
    own = [link for link in chosen_plan.links if device in (link.first, link.second)]
    others = {link.second if link.first == device else link.first: link for link in own}
    noised = device in chosen_plan.dp_devices
    return pb.Assignment(
        device_id=given.ids[device],
        role=words.ROLE_PEER,
        group=-1,
        block=-1,
        batch_size=int(min(chosen_plan.batch_sizes[device], np.iinfo(np.int32).max)),
        neighbours=[
            pb.Neighbour(
                device_id=given.ids[other],
                weight=float(mixing[device, other]),
                trusted=others[other].trusted,
                link_seconds=float(given.network.link_seconds[device, other]),
            )
            for other in sorted(others)
        ],
        self_weight=float(mixing[device, device]),
        noised=noised,
        because=_because(given, others, noised),
    )


def _because(given: MeshInputs, others: dict[int, PlannedLink], noised: bool) -> str:
    if not others:
        return "it is the only device"
    links = ", ".join(f"{given.names[other]} ({others[other].step})" for other in sorted(others)[:8])
    more = f" and {len(others) - 8} more" if len(others) > 8 else ""
    why = "adds noise: not every neighbour is trusted" if noised else "all neighbours are trusted"
    return f"exchanges with {links}{more}; {why}"


def _details(given: MeshInputs, chosen_plan: MeshPlan, bridges: list[Pair]) -> pb.MeshDetails:
    """Why this plan: each link with its step and score, the quantities of [BETTA] (13), and what else was possible."""
    network, figures = given.network, chosen_plan.figures
    links = [
        pb.PlannedLink(
            between=[given.ids[link.first], given.ids[link.second]],
            step=link.step,
            score=None if link.score is None or not np.isfinite(link.score) else float(link.score),
            trusted=link.trusted,
            seconds=float(network.link_seconds[link.first, link.second]),
        )
        for link in chosen_plan.links
    ]
    return pb.MeshDetails(
        basis=given.basis,
        names=dict(zip(given.ids, given.names, strict=True)),
        links=links,
        bridges=[pb.DeviceList(items=[given.ids[i], given.ids[j]]) for i, j in bridges],
        dp_budget=chosen_plan.dp_budget,
        noised=[given.ids[device] for device in chosen_plan.dp_devices],
        hitting_time=figures.hitting_time,
        spectral_gap=figures.spectral_gap,
        pseudo_training_time=figures.pseudo_training_time,
        transfers=given.rules.transfers,
        epsilon=given.rules.epsilon,
        baselines=baseline_figures(given, chosen_plan),
    )


def baseline_figures(given: MeshInputs, chosen_plan: MeshPlan) -> dict[str, pb.MeshBaseline]:
    """Round seconds, pseudo training time and noisy devices of the plain topologies, and why the plan is not one of
    them; those impossible are left out."""
    network = given.network
    if network.devices > MOST_BASELINE_DEVICES:
        return {}
    topologies = {
        "social": social_links(network),
        "ring": ring_links(network.devices),
        "complete": complete_links(network.devices),
    }
    baselines = {}
    for name, links in topologies.items():
        try:
            plan = evaluate_links(network, given.rules, links)
        except (NotConnected, BadMeshInput):
            continue
        baselines[name] = pb.MeshBaseline(
            round_seconds=plan.figures.local_iterate,
            pseudo_training_time=plan.figures.pseudo_training_time,
            noised=float(len(plan.dp_devices)),
            why_not=why_not(given, chosen_plan, plan),
        )
    return baselines


def why_not(given: MeshInputs, chosen_plan: MeshPlan, other: MeshPlan) -> str:
    """Why the plan chosen_plan was chosen and not another topology."""
    ends = Counter(device for link in other.links for device in (link.first, link.second))
    most, cap = max(ends.values(), default=0), given.rules.max_degree
    reasons = []
    if cap is not None and most > cap:
        reasons.append(f"a device would have {most} neighbours, and at most {cap} are allowed (max_degree)")
    if len(other.dp_devices) > len(chosen_plan.dp_devices):
        reasons.append(f"{len(other.dp_devices)} devices would add noise, not {len(chosen_plan.dp_devices)}")
    if other.figures.pseudo_training_time > chosen_plan.figures.pseudo_training_time:
        reasons.append("it takes longer to train")
    if given.settings.plan != "betta":
        reasons = [f"the task asked for the plan {given.settings.plan}"]
    if {_pair(link) for link in other.links} == {_pair(link) for link in chosen_plan.links}:
        return "it is the plan"
    return "; ".join(reasons) or "adding links one by one, each the best, did not lead to it"


def _pair(link: PlannedLink) -> Pair:
    return min(link.first, link.second), max(link.first, link.second)
