"""Forms social clusters: devices transfer to clusters that pay them more until no device wants to. [SCFL] "Social-Aware
Clustered Federated Learning", §V-B, Algorithm 1; exact rules in spec §3.2-3.4.

Two orders of play: `rounds`, the paper's batch algorithm, in which every cluster admits one applicant per round; and
`sweep`, in which devices move in turn, at once. Both remember for every device the clusters it has ever been in and
never return to one, which is what makes them end. The end need not be stable (spec A16: the paper's Theorem 3 is
false), so the independent checker is asked; if it finds a move, histories are cleared and play goes on, and as a last
resort `formation_search` looks for a stable partition elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from services.kit.errors import InvalidInput
from services.topology.domain import formation_search
from services.topology.domain.coalition import Game, Partition, partition_of
from services.topology.domain.coalition_value import TOLERANCE
from services.topology.domain.formation_board import SOLO, Board, Option
from services.topology.domain.quality import Floats
from services.topology.domain.stability import BlockingMove, blocking_move

Method = Literal["rounds", "sweep"]
RESTARTS = 20
ITERATIONS = 10_000


class InvalidMethod(InvalidInput):
    """An order of play that does not exist."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Devices that share updates with one head; a device alone is its own head."""

    members: tuple[int, ...]
    head: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """One move: in which iteration, who, from where to where (members without the device), and what it gained.

    A device that was a stranger to its head gains infinitely.
    """

    iteration: int
    device: int
    source: tuple[int, ...]
    target: tuple[int, ...]
    gain: float


@dataclass(frozen=True, slots=True)
class Formation:
    """The final partition, its payoffs, and the moves that led to it.

    iterations: rounds or sweeps in which a device moved, restarts included.
    converged: play ended because no device wanted (or was allowed by history) to move, not at the iteration limit.
    stable: the independent checker's word. blocking: its most profitable move if not stable.
    searched: how the final partition was found if not by play: "" (play), "exact" or "perturbed"; transfers end where
        play ended.
    counts: number of clusters at the start and after every iteration.
    """

    clusters: tuple[Cluster, ...]
    noise: Floats
    quality: Floats
    payoff: Floats
    iterations: int
    converged: bool
    stable: bool
    blocking: BlockingMove | None
    transfers: tuple[Transfer, ...]
    restarts: int
    searched: formation_search.Found
    counts: tuple[int, ...]

    @property
    def partition(self) -> Partition:
        """The final clusters' members."""
        return tuple(cluster.members for cluster in self.clusters)


def form(
    game: Game,
    start: Partition,
    method: Method = "sweep",
    *,
    restarts: int = RESTARTS,
    search: bool = True,
    pruned: bool = True,
    iteration_limit: int = ITERATIONS,
) -> Formation:
    """Clusters from `start` (any partition) by `method`, checked, restarted and searched until stable or given up.

    Deterministic: the same game and start give the same answer. `restarts=0, search=False` is the plain algorithm.
    `pruned=False` evaluates every device with every cluster and answers the same, more slowly.
    """
    if method not in ("rounds", "sweep"):
        raise InvalidMethod(f"method must be rounds or sweep, not {method!r}")
    board = Board(game, partition_of(start, game.size), pruned=pruned)
    play = _Play(board, iteration_limit)
    ends: set[Partition] = set()
    while True:
        converged = play.rounds(one_transfer=bool(ends)) if method == "rounds" else play.sweeps()
        end = board.partition
        blocking = blocking_move(game, end)
        if blocking is None or not converged or len(ends) >= restarts or end in ends:
            break
        ends.add(end)
        play.forget()
    result: formation_search.Found = ""
    if blocking is not None and search:
        better, result = formation_search.stable_partition(game, end, board)
        board.reset(better)
        blocking = blocking_move(game, better)
    return Formation(
        clusters=tuple(Cluster(group, board.head_of(board.cluster_of(group[0]))) for group in board.partition),
        noise=board.noise,
        quality=board.quality,
        payoff=board.payoff,
        iterations=play.iteration,
        converged=converged,
        stable=blocking is None,
        blocking=blocking,
        transfers=tuple(play.transfers),
        restarts=len(ends),
        searched=result,
        counts=tuple(play.counts),
    )


@dataclass(slots=True)
class _Play:
    """Histories and turns on one board."""

    board: Board
    limit: int
    iteration: int = 0
    transfers: list[Transfer] = field(default_factory=list)
    history: list[set[frozenset[int]]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.forget()
        self.counts.append(self._clusters())

    def forget(self) -> None:
        """Clears every H_n but for the present cluster."""
        self.board.forget()
        self.history = [set() for _ in range(len(self.board.members) - 1)]
        for group in self.board.members:
            self._record(group)

    def rounds(self, *, one_transfer: bool) -> bool:
        """Batch play (spec §3.2) until no device requests; False at the iteration limit."""
        while self.iteration < self.limit:
            requests = [(n, choice) for n in self._restless() if (choice := self._best(n)) is not None]
            if not requests:
                return True
            self.iteration += 1
            retained = _admissions(requests)
            self._transfer_batch(retained[:1] if one_transfer else retained)
            for group in self.board.members:
                self._record(group)
            self.counts.append(self._clusters())
        return False

    def sweeps(self) -> bool:
        """Devices in turn (spec §3.3) until a sweep without moves; False at the iteration limit."""
        while self.iteration < self.limit:
            before = len(self.transfers)
            self.iteration += 1
            for device in self._restless():
                choice = self._best(device)
                if choice is None:
                    continue
                source, number = self._transfer(device, choice[1])
                self._record(self.board.members[source])
                self._record(self.board.members[number])
            if len(self.transfers) == before:
                self.iteration -= 1
                return True
            self.counts.append(self._clusters())
        return False

    def _restless(self) -> Iterator[int]:
        """Devices in turn, without those that cannot have an option when their turn comes."""
        device = self.board.next_restless(0)
        while device < len(self.history):
            yield device
            device = self.board.next_restless(device + 1)

    def _best(self, device: int) -> Option | None:
        """The best thing the device may do: ties go to the smallest minimal id, alone last (spec A12)."""
        past, members = self.history[device], self.board.members

        def unvisited(cluster: int) -> bool:
            return frozenset(members[cluster] | {device}) not in past

        options = self.board.options(device, unvisited)
        if not options:
            return None
        top = max(rho for rho, _ in options)
        tied = [option for option in options if option[0] >= top - TOLERANCE]
        return min(tied, key=lambda option: len(members) if option[1] == SOLO else min(members[option[1]]))

    def _transfer_batch(self, accepted: list[tuple[int, Option]]) -> None:
        """Carries out requests; no cluster both admits and releases, or admits twice, in one round (spec A15)."""
        admitted: set[int] = set()
        released: set[int] = set()
        for device, (_, target) in accepted:
            if self.board.cluster_of(device) in admitted or target in released or target in admitted:
                continue
            source, number = self._transfer(device, target)
            released.add(source)
            admitted.add(number)

    def _transfer(self, device: int, target: int) -> tuple[int, int]:
        board, before = self.board, self.board.standing(device)
        source = board.cluster_of(device)
        left, joined = board.members[source] - {device}, () if target == SOLO else board.members[target]
        record = (tuple(sorted(left)), tuple(sorted(joined)))
        number = board.move(device, target)
        self.transfers.append(Transfer(self.iteration, device, *record, board.standing(device) - before))
        return source, number

    def _record(self, group: set[int]) -> None:
        if len(group) > 1:
            coalition = frozenset(group)
            for device in group:
                self.history[device].add(coalition)

    def _clusters(self) -> int:
        return sum(1 for group in self.board.members if group)


def _admissions(requests: list[tuple[int, Option]]) -> list[tuple[int, Option]]:
    """One applicant per cluster, the one with the largest ρ, and all who want to be alone; by decreasing ρ."""
    best: dict[int, tuple[int, Option]] = {}
    retained = []
    for device, (rho, target) in requests:
        if target == SOLO:
            retained.append((device, (rho, target)))
        elif target not in best or rho > best[target][1][0] + TOLERANCE:
            best[target] = (device, (rho, target))
    retained += best.values()
    return sorted(retained, key=lambda request: (-round(request[1][0], 9), request[0]))
