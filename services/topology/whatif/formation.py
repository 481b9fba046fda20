"""What-if `clusters`: stable social clusters for a matrix of direct trust. [SCFL] §IV-V."""

from __future__ import annotations

from typing import Any, Literal

from services.kit.runtime import whatif
from services.topology.domain.coalition import Game, GameParameters, partition_of, singletons
from services.topology.domain.formation import Formation, form
from services.topology.domain.quality import QualityModel
from services.trust.domain.graph import InvalidTrustGraph, TrustGraph


class Input(whatif.Input):
    """Keys of the question; see the platform's what-if contract."""

    direct: list[list[float]]
    non_iid: float | list[float] = 1.0
    start: Literal["singletons"] | list[list[int]] = "singletons"
    method: Literal["rounds", "sweep"] = "rounds"
    head_reward: float = 0.0
    noise_max: float = 0.6
    trust_threshold: float = 0.7
    direct_weight: float = 0.8
    calibration: Literal["paper", "exact"] = "paper"


def solve(question: Input) -> dict[str, Any]:
    """Clusters from the given start, every device's noise, quality and payoff, and the checker's result."""
    if any(len(row) != len(question.direct) for row in question.direct):
        raise InvalidTrustGraph(f"direct must be square: {len(question.direct)} rows need as many columns each")
    game = Game(
        TrustGraph.from_dense(question.direct),
        question.non_iid,
        quality=QualityModel(
            trust_threshold=question.trust_threshold,
            noise_max=question.noise_max,
            calibration=question.calibration,
        ),
        game_parameters=GameParameters(head_reward=question.head_reward),
        direct_weight=question.direct_weight,
    )
    start = singletons(game.size) if question.start == "singletons" else partition_of(question.start, game.size)
    return _answer(form(game, start, question.method))


def _answer(formation: Formation) -> dict[str, Any]:
    move = formation.blocking
    return {
        "clusters": [{"members": cluster.members, "head": cluster.head} for cluster in formation.clusters],
        "noise": formation.noise,
        "quality": formation.quality,
        "payoff": formation.payoff,
        "iterations": formation.iterations,
        "converged": formation.converged,
        "stable": formation.stable,
        "blocking": None
        if move is None
        else {"device": move.device, "from": move.source, "to": move.target, "gain": move.gain},
    }
