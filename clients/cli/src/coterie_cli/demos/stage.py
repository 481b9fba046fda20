"""What every demo stands on: a platform in a temporary folder, owners with devices, and their agents in threads."""

from __future__ import annotations

import gc
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.agent.cache import BlobCache
from coterie.client import Platform
from coterie_cli.processes import PlatformProcesses, compile_planners, planners_are_compiled

if TYPE_CHECKING:
    from coterie.agent.agent import Agent


MEETING_SECONDS, MEETING_PAUSE = 600.0, 4 * 3600.0


@dataclass(slots=True)
class Stage:
    """A running platform with an admin at its door.

    Attributes:
        processes: the services.
        platform: the admin's view.
        folder: temporary, removed at the end.
        cache: shared by all agents.
    """

    processes: PlatformProcesses
    platform: Platform
    folder: Path
    cache: BlobCache
    agents: list[Agent] = field(default_factory=list)
    faults: list[BaseException] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def token_for(self, owner: str, uses: int) -> str:
        """An enrolment token for an owner's devices."""
        return str(self.platform.issue_token(self.platform.create_owner(owner).id, uses=uses).token)

    def add_agent(self, token: str, name: str, **options: Any) -> Agent:
        """Registers a device and gives back its agent; options as in `Agent.register`."""
        from coterie.agent.agent import Agent

        agent = Agent.register(
            self.processes.url,
            token,
            name=name,
            home=self.folder / "devices" / name,
            cache=self.cache,
            poll_seconds=2.0,
            **options,
        )
        self.agents.append(agent)
        return agent

    def meet(self, pairs: Sequence[tuple[Agent, Agent]], good: int, bad: int = 0) -> None:
        """Lets pairs of devices have met every four hours until now, the bad meetings first.

        Each end reports its own side, as devices do: good counts when both say so.
        """
        from coterie.client.trust import Meeting

        now, sides = time.time(), dict[str, list[Meeting]]()
        for a, b in pairs:
            for me, other in ((a, b), (b, a)):
                sides.setdefault(me.identity.id, []).extend(
                    Meeting(other.identity.id, now - MEETING_PAUSE * (k + 1), MEETING_SECONDS, positive=k < good)
                    for k in range(good + bad)
                    if k < good or me is a
                )
        for agent in {id(agent): agent for pair in pairs for agent in pair}.values():
            agent.platform.report_meetings(agent.identity.id, sides[agent.identity.id])

    def run_agents(self, agents: Sequence[Agent], task_id: str) -> None:
        """Lets every agent join and work, each in a thread of its own."""
        for agent in agents:
            thread = threading.Thread(target=self._run, args=(agent, task_id), name=agent.identity.name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def start_task(self, task_id: str) -> None:
        """Starts a task when every agent has enrolled."""
        while self.platform.task(task_id).enrolled < len(self.agents):
            if self.faults:
                raise self.faults[0]
            time.sleep(0.05)
        self.platform.start_task(task_id)

    def play(self, agents: Sequence[Agent], task_id: str, *, quietly: bool) -> None:
        """A task from its start to its end, told on the way unless `quietly`."""
        from coterie_cli.live import follow

        self.run_agents(agents, task_id)
        self.start_task(task_id)
        if quietly:
            self.platform.wait_for_end(task_id)
        else:
            follow(self.platform, task_id)
        self.wait_for_agents()

    def _run(self, agent: Agent, task_id: str) -> None:
        try:
            agent.join(task_id)
            agent.run()
        except BaseException as error:
            self.faults.append(error)

    def wait_for_agents(self, seconds: float = 30.0) -> None:
        """Returns when every agent has seen its task end; raises what an agent failed of."""
        for thread in self._threads:
            thread.join(seconds)
        if self.faults:
            raise self.faults[0]

    def close(self) -> None:
        """Stops agents."""
        for agent in self.agents:
            agent.stop()
        self.platform.close()


@contextmanager
def rising(*, planners: bool = False, learning: bool = True) -> Iterator[Callable[[], Stage]]:
    """Begins a platform on free ports in a temporary folder, gone at the end; what it gives waits until it is up.

    planners: compile theirs first.  learning: load torch meanwhile, for one thread.
    """
    if planners and not planners_are_compiled():
        compile_planners().wait()
    with ExitStack() as stack:
        name = tempfile.TemporaryDirectory(prefix="coterie-demo-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(name))
        quiet = {"COTERIE_LOG_LEVEL": "WARNING"}
        processes = PlatformProcesses.on_free_ports(folder / "platform", quiet)
        stack.callback(processes.stop)
        processes.begin()
        if learning:
            from coterie.learning.training import single_threaded

            single_threaded()

        def up() -> Stage:
            processes.wait_until_healthy(180.0)
            gc.freeze()  # what torch brought stays: nobody need look for garbage in it again
            cache = BlobCache(folder / "cache")
            made = Stage(processes, Platform(processes.url, processes.admin_key(), cache=cache), folder, cache)
            stack.callback(made.close)
            return made

        yield up


@contextmanager
def stage(*, planners: bool = False) -> Iterator[Stage]:
    """A platform as of `rising`, when it is up."""
    with rising(planners=planners, learning=False) as up:
        yield up()
