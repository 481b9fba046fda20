"""Many devices in one process, each a complete agent with its own keys, circle, ledger, letters and noise, over REST.

    fleet = Fleet.register(url, token, [learner(number) for number in range(200)], folder="simulated")
    fleet.join("digits")
    print(fleet.run())

The agents behave exactly as in separate processes, except that they take turns at training.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.agent.agent import Agent
from coterie.agent.cache import BlobCache
from coterie.agent.home import introduce
from coterie.agent.results import RoundResult
from coterie.learning.learner import Learner
from coterie.parameters.task import SumsParameters
from coterie.privacy.ledger import Limit
from coterie.records import TaskSpecification
from coterie.strategies.consent import unit_of

AT_ONCE = 16
HEARTBEAT_SECONDS = 60.0
LETTERS = ("clusters", "mesh")
"""Topologies in which devices write to each other, so that those of a fleet must know each other's keys."""
EPSILON, DELTA = 1e6, 1e-5
"""What simulated owners allow, unless said otherwise: everything."""
_log = logging.getLogger("coterie.agent.fleet")


@dataclass(slots=True)
class FleetSummary:
    """What became of a fleet's work.

    Attributes:
        state: how the task ended; "interrupted" when the fleet was stopped first.
        outcomes: rounds of single devices by outcome.
        reasons: why rounds were declined, refused or late, with how often.
        epsilon: the most privacy that one device spent by its own ledger.
        seconds: from start to end.
    """

    state: str = ""
    outcomes: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    epsilon: float = 0.0
    seconds: float = 0.0

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        spent = f"; the most spent by one device: ε = {self.epsilon:.3g}" if self.epsilon > 0.0 else ""
        return f"task {self.state}: {outcomes or 'nothing delivered'} in {self.seconds:.1f} s{spent}"


def limit_for(specification: TaskSpecification, epsilon: float = EPSILON) -> Limit:
    """What a simulated owner allows in a task: ε for one example where no more is hidden, else for a whole device."""
    return Limit(epsilon, DELTA, unit_of(specification), allow_raw=True)


class Fleet:
    """Agents that work side by side."""

    def __init__(self, agents: Sequence[Agent]) -> None:
        self.agents = list(agents)
        self._task_id = ""
        self._limit: Limit | None = None

    @classmethod
    def register(
        cls,
        url: str,
        token: str,
        learners: Sequence[Learner],
        *,
        folder: Path | str,
        prefix: str = "simulated",
        limit: Limit | None = None,
        **options: Any,
    ) -> Fleet:
        """A device for each learner, named by number, at home below `folder`; with one token good for all of them.

        Without a limit each owner allows what `limit_for` the task says that the fleet joins.
        """
        cache = BlobCache(Path(folder) / "cache")
        options = {"on_error": "continue", "heartbeat_seconds": HEARTBEAT_SECONDS, "kind": "simulated", **options}

        def one(number: int, learner: Learner) -> Agent:
            name = f"{prefix}-{number + 1:05}"
            home = Path(folder) / name
            return Agent.register(
                url, token, name=name, home=home, learner=learner, cache=cache, limit=limit, **options
            )

        with ThreadPoolExecutor(AT_ONCE) as pool:
            fleet = cls(list(pool.map(one, range(len(learners)), learners)))
        fleet._limit = limit
        return fleet

    def join(self, task: str) -> str:
        """Enrols every device in a task; where they write letters, each takes the others into its circle."""
        specification = self.agents[0].platform.find_task(task).specification
        secure = SumsParameters.of(specification.parameters).mode == "secure"
        if specification.topology in LETTERS or secure:
            introduce(*(agent.home for agent in self.agents))
        if self._limit is None:
            for agent in self.agents:
                agent.home.ledger(limit_for(specification))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            # What it costs is the same for all, and said once.
            joined = pool.map(lambda agent: agent.join(task, quietly=agent is not self.agents[0]), self.agents)
            (self._task_id,) = set(joined)
        return self._task_id

    def run(self, on_round: Callable[[Agent, RoundResult], None] | None = None) -> FleetSummary:
        """Does all devices' work until the task has ended, or until Ctrl-C; raises what an agent failed of."""
        faults: list[BaseException] = []
        results: list[RoundResult] = []
        states: Counter[str] = Counter()
        lock, began = threading.Lock(), time.monotonic()

        def work(agent: Agent) -> None:
            try:
                summary = agent.run()
            except BaseException as error:
                _log.error("%s has failed: %s", agent.identity.name, error)
                faults.append(error)
                return
            with lock:
                results.extend(summary.rounds)
                states.update(summary.tasks.values())
            if on_round is not None:
                for result in summary.rounds:
                    on_round(agent, result)

        threads = [
            threading.Thread(target=work, args=(agent,), name=agent.identity.name, daemon=True) for agent in self.agents
        ]
        for thread in threads:
            thread.start()
        self._wait(threads)
        if faults:
            raise faults[0]
        return self._summary(results, states, time.monotonic() - began)

    def _wait(self, threads: Sequence[threading.Thread]) -> None:
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            self.stop()
            for thread in threads:
                thread.join()

    def stop(self) -> None:
        """Asks every agent to stop."""
        for agent in self.agents:
            agent.stop()

    def close(self) -> None:
        """Gives connections back."""
        for agent in self.agents:
            agent.close()

    def _summary(self, results: Sequence[RoundResult], states: Counter[str], seconds: float) -> FleetSummary:
        counted = Counter(str(result.outcome) for result in results)
        why = Counter(result.note for result in results if result.note)
        spent = max((agent.spent().epsilon for agent in self.agents), default=0.0)
        state = states.most_common(1)[0][0] if states else "interrupted"
        return FleetSummary(state, dict(counted), dict(why.most_common(10)), spent, seconds)
