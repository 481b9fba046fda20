"""The platform of a demo, in a temporary folder, with owners, devices and agents in threads."""

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
class DemoPlatform:
    """A running platform with an admin's client.

    Attributes:
        processes: the services.
        admin: client with the admin key.
        folder: temporary folder, removed at the end.
        cache: shared by all agents.
        errors: exceptions raised by agents.
    """

    processes: PlatformProcesses
    admin: Platform
    folder: Path
    cache: BlobCache
    agents: list[Agent] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def token_for(self, owner: str, uses: int) -> str:
        """Create an owner and return an enrolment token for its devices."""
        return str(self.admin.issue_token(self.admin.create_owner(owner).id, uses=uses).token)

    def add_agent(self, token: str, name: str, **options: Any) -> Agent:
        """Register a device and return its agent; options as in `Agent.register`."""
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
        """Report past meetings of pairs of devices, one every four hours, the bad ones first.

        Each device reports its own side: a good meeting counts when both report it.
        """
        from coterie.client.trust import Meeting

        now, sides = time.time(), dict[str, list[Meeting]]()
        for a, b in pairs:
            for device, other in ((a, b), (b, a)):
                sides.setdefault(device.identity.id, []).extend(
                    Meeting(other.identity.id, now - MEETING_PAUSE * (k + 1), MEETING_SECONDS, positive=k < good)
                    for k in range(good + bad)
                    if k < good or device is a
                )
        for agent in {id(agent): agent for pair in pairs for agent in pair}.values():
            agent.platform.report_meetings(agent.identity.id, sides[agent.identity.id])

    def run_agents(self, agents: Sequence[Agent], task_id: str) -> None:
        """Start a thread per agent, in which it joins the task and works."""
        for agent in agents:
            thread = threading.Thread(target=self._run, args=(agent, task_id), name=agent.identity.name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def start_task(self, task_id: str) -> None:
        """Start the task as soon as every agent has enrolled."""
        while self.admin.task(task_id).enrolled < len(self.agents):
            if self.errors:
                raise self.errors[0]
            time.sleep(0.05)
        self.admin.start_task(task_id)

    def run_task(self, agents: Sequence[Agent], task_id: str, *, quiet: bool) -> None:
        """Run a task from start to end; show its progress unless `quiet`."""
        from coterie_cli.live import follow

        self.run_agents(agents, task_id)
        self.start_task(task_id)
        if quiet:
            self.admin.wait_for_end(task_id)
        else:
            follow(self.admin, task_id)
        self.wait_for_agents()

    def _run(self, agent: Agent, task_id: str) -> None:
        try:
            agent.join(task_id)
            agent.run()
        except BaseException as error:
            self.errors.append(error)

    def wait_for_agents(self, seconds: float = 30.0) -> None:
        """Wait until every agent has stopped; raise the first error of an agent."""
        for thread in self._threads:
            thread.join(seconds)
        if self.errors:
            raise self.errors[0]

    def close(self) -> None:
        """Stop all agents and close the client."""
        for agent in self.agents:
            agent.stop()
        self.admin.close()


@contextmanager
def starting_platform(*, planners: bool = False, learning: bool = True) -> Iterator[Callable[[], DemoPlatform]]:
    """Start a platform on free ports in a temporary folder; the yielded function waits until it is healthy.

    planners: compile the planners first.  learning: load torch meanwhile, with one thread.
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

        def wait() -> DemoPlatform:
            processes.wait_until_healthy(180.0)
            gc.freeze()  # objects of torch live to the end: keep the garbage collector away from them
            cache = BlobCache(folder / "cache")
            demo = DemoPlatform(processes, Platform(processes.url, processes.admin_key(), cache=cache), folder, cache)
            stack.callback(demo.close)
            return demo

        yield wait


@contextmanager
def running_platform(*, planners: bool = False) -> Iterator[DemoPlatform]:
    """Start a platform as `starting_platform` and wait until it is healthy."""
    with starting_platform(planners=planners, learning=False) as wait:
        yield wait()
