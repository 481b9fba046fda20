"""Tables of `coterie task plan`: who exchanges updates with whom, and why."""

from __future__ import annotations

from rich.console import Group, RenderableType

from coterie.records import Plan, Role
from coterie_cli.console import table


def plan_table(plan: Plan) -> RenderableType:
    """Make the table that suits the topology of a plan."""
    views = {"clusters": _clusters, "mesh": _mesh}
    return views.get(plan.topology, _assignments)(plan)


def _assignments(plan: Plan) -> RenderableType:
    rows = [
        [s.device_id, s.role, s.group, s.head_device_id or "–", f"{s.weight:g}", s.because] for s in plan.assignments
    ]
    title = f"plan {plan.version} ({plan.topology})"
    return table(title, ["device", "role", "group", "head", "weight", "because"], rows)


def _clusters(plan: Plan) -> RenderableType:
    """Make a table of clusters with noise and payoffs, unclustered devices last, and the verdict of the checker."""
    details, move = plan.details, plan.details["blocking"]
    verdict = "stable: no device gains by moving"
    if move is not None:
        verdict = f"not stable: {move['device']} would gain by joining {', '.join(move['to']) or 'no cluster'}"
    assignments = sorted(plan.assignments, key=lambda s: (s.group < 0, s.group, s.role != Role.HEAD, s.device_id))
    rows = [
        [
            s.group if s.group >= 0 else "–",
            s.device_id,
            s.role,
            f"{s.noise_multiplier:.3f}",
            f"{s.weight:.2f}",
            f"{s.payoff:.2f}",
            s.because,
        ]
        for s in assignments
    ]
    payoffs = f"mean payoff {details['mean_payoff']:.2f}, alone {details['mean_solo_payoff']:.2f}"
    title = f"plan {plan.version} (clusters): {verdict}; {payoffs}"
    return table(title, ["cluster", "device", "role", "noise", "quality", "payoff", "because"], rows)


def _mesh(plan: Plan) -> RenderableType:
    """Make tables of devices, links with the step that added each, and other topologies for comparison."""
    details, names = plan.details, plan.details["names"]
    devices = [
        [
            names[s.device_id],
            s.device_id,
            len(s.neighbours),
            s.batch_size,
            f"{s.self_weight:.3f}",
            "adds noise" if s.noised else "–",
        ]
        for s in plan.assignments
    ]
    links = [
        [
            "–".join(names[device] for device in link["between"]),
            link["step"],
            "–" if link["score"] is None else f"{link['score']:.4g}",
            "yes" if link["trusted"] else "no",
            f"{link['seconds']:.4g} s",
        ]
        for link in details["links"]
    ]
    figures = {"this plan": {**_figures(plan), "noised": len(details["noised"])}, **details["baselines"]}
    others = [
        [
            name,
            f"{item['round_seconds']:.4g} s",
            f"{item['pseudo_training_time']:.4g}",
            int(item["noised"]),
            item.get("why_not", ""),
        ]
        for name, item in figures.items()
    ]
    title = (
        f"plan {plan.version} (mesh): a round takes {plan.round_seconds:.4g} s as planned, "
        f"hitting time {details['hitting_time']:.4g}, spectral gap {details['spectral_gap']:.3g}"
    )
    return Group(
        table(title, ["device", "id", "neighbours", "batch", "own weight", "privacy"], devices),
        table("\nlinks, in the order they were added", ["between", "step", "score", "trusted", "transfer"], links),
        table("\nbeside other topologies", ["topology", "round", "pseudo training time", "noisy", "why not"], others),
    )


def _figures(plan: Plan) -> dict[str, float]:
    return {
        "round_seconds": plan.round_seconds,
        "pseudo_training_time": plan.details["pseudo_training_time"],
    }
