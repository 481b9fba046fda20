"""A secure round against a clear one, over real REST: `python bench/secure_rounds.py [devices …]`, else 20 and 250.

Starts the whole platform on free ports in a temporary folder. A fleet delivers random updates of a model of 7,850
numbers, first in the clear, then masked and noised, to the same platform in the same run; four of its devices are
clerks and count, each in a separate process. No training: this is what hiding costs. Prints the median round of each,
how long counting took from the last delivery to the opened sum, how often the clerks asked for duties and were given
one, and processor time; beside them the specification's goals (§12).
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rounds import cpu_seconds
from safetensors.numpy import save

from coterie.agent.committee_worker import Clerking
from coterie.agent.report import Delivery, SumSeal
from coterie.client import Platform
from coterie.privacy.stream import FreshStream
from coterie.protocol.transport import Backoff, Stop
from coterie.records import Duty, WorkItem
from coterie.secure_sums.committee_store import CommitteeStore
from coterie.secure_sums.contribution import contribution
from coterie.secure_sums.terms import Terms
from coterie.secure_sums.uploads import FORM, make_upload
from coterie_cli.load_generator import LoadGenerator, RandomWorker, SimulatedDevice
from coterie_cli.processes import PlatformProcesses

CLERKS, ELEMENTS = 4, 7_850
ROUNDS = {20: 20, 250: 5}
FEW_ROUNDS = 3
MOST_POLLS, MOST_SECONDS = 3, {1_000: 3.0}
"""Goals: answered polls of a clerk between the last delivery and the sum, and seconds of counting by devices."""
PATIENT = Backoff(patience_seconds=120.0)
SECURE = {"sums": {"mode": "secure", "offer_seconds": 120.0}, "privacy": {"noise_multiplier": 1.0}}
ASKED: Counter[str] = Counter()
"""Polls of all clerks by duty; "nothing" for an empty poll."""


class Asking(Platform):
    """A clerk's line to the platform that counts its polls."""

    def duties(self, *, wait_seconds: float = 0.0) -> tuple[Duty, ...]:
        """As it is, and counted."""
        result = super().duties(wait_seconds=wait_seconds)
        ASKED.update([duty.kind for duty in result] or ["nothing"])
        return result


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians of a task's rounds in seconds, of counting too, and processor seconds a round of all processes."""

    rounds: int
    seconds: float
    counting: float
    cpu: dict[str, float]

    @property
    def spent(self) -> str:
        """Processor milliseconds a round."""
        parts = ", ".join(f"{who} {seconds * 1000:.0f}" for who, seconds in self.cpu.items() if seconds >= 0.0005)
        return f"{parts}, all {sum(self.cpu.values()) * 1000:.0f}"


class Masking(RandomWorker):
    """Random changes; masked where the work has terms."""

    blocking = True

    def deliver(self, member: SimulatedDevice, work: WorkItem, model: Any) -> Delivery:
        """The change as it is, or clipped, noised, masked, and its seeds sealed to the clerks."""
        result = super().deliver(member, work, model)
        if not work.sum:
            return result
        assert member.keys is not None
        assert result.tensors is not None
        terms = Terms.read(work.sum)
        (change,) = result.tensors.values()
        values = contribution(np.ravel(change), terms, 1.0, FreshStream())
        upload, signature = make_upload(values, terms, member.id, member.keys, [], 0)
        return Delivery(upload.tensors(), 1.0, form=FORM, sum=SumSeal(terms.digest.hex(), signature.hex()))


def main(sizes: list[int]) -> None:
    """Measures each size on one platform."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as folder:
        processes = PlatformProcesses.on_free_ports(Path(folder), {"COTERIE_LOG_LEVEL": "WARNING"})
        processes.start(wait_seconds=600.0)
        try:
            for devices in sizes:
                asyncio.run(measure(processes, devices, Path(folder)))
        finally:
            processes.stop()


async def measure(processes: PlatformProcesses, devices: int, folder: Path) -> None:
    """One clear and one secure task with the same devices."""
    fleet = LoadGenerator(processes.url)
    with Platform(processes.url, processes.admin_key(), backoff=PATIENT) as admin:
        async with fleet.open(devices):
            members: list[SimulatedDevice] = []
            for number in range(CLERKS + 1):
                count = 1 if number < CLERKS else devices - CLERKS
                token = admin.issue_token(admin.create_owner(f"owner {number}").id, uses=count).token
                members += await fleet.register(token, [f"b{devices}-{number}-{at}" for at in range(count)])
            clear = await run(processes, admin, fleet, members, {})
            ASKED.clear()
            with clerks(processes, members[:CLERKS], folder / f"clerks-{devices}") as serving:
                secure = await run(processes, admin, fleet, members, SECURE, serving)
    tell(devices, clear, secure)


def tell(devices: int, clear: Measured, secure: Measured) -> None:
    """One size's figures, and whether they meet the goals."""
    print(f"{devices:5} devices, {ELEMENTS} numbers, {os.cpu_count()} cores", flush=True)
    for name, result in (("clear", clear), ("secure", secure)):
        print(f"      {name}: median {result.seconds * 1000:.0f} ms of {result.rounds} rounds; CPU, ms: {result.spent}")
    beyond = (secure.seconds - clear.seconds) * 1000
    ratio = sum(secure.cpu.values()) / sum(clear.cpu.values())
    print(f"      secure takes {beyond:.0f} ms and {ratio:.2f} times the CPU of a clear round")
    polls = {kind: ASKED[kind] / CLERKS / secure.rounds for kind in sorted(ASKED)}
    counted = sum(polls.get(kind, 0.0) for kind in ("ready_check", "agree", "answer"))
    print("      polls of a clerk a round: " + ", ".join(f"{kind} {count:.1f}" for kind, count in polls.items()))
    verdict = "met" if counted <= MOST_POLLS + 0.5 else "MISSED"
    print(f"      answered polls while counting: {counted:.1f}  (goal {MOST_POLLS}: {verdict})")
    most = MOST_SECONDS.get(devices)
    goal = f"  (goal under {most:g} s: {'met' if secure.counting < most else 'MISSED'})" if most else ""
    print(f"      counting took {secure.counting * 1000:.0f} ms from the last delivery{goal}", flush=True)


@contextmanager
def clerks(processes: PlatformProcesses, chosen: list[SimulatedDevice], folder: Path) -> Iterator[list[psutil.Process]]:
    """Devices that serve as clerks, each in a separate process; how often they asked is added up when they end."""
    folder.mkdir()
    spawning, serving = multiprocessing.get_context("spawn"), []
    for member in chosen:
        here, there = spawning.Pipe()
        process = spawning.Process(target=serve, args=(processes.url, member, folder / f"{member.name}.db", there))
        process.start()
        serving.append((process, here))
    for _, line in serving:
        line.recv()
    try:
        yield [psutil.Process(process.pid) for process, _ in serving]
    finally:
        for process, line in serving:
            line.send("enough")
            ASKED.update(line.recv())
            process.join()


def serve(url: str, member: SimulatedDevice, file: Path, line: Connection) -> None:
    """Serve as a clerk until the parent sends a message; return the number of polls."""
    assert member.keys is not None
    stop = Stop()
    platform = Asking(url, member.api_key, backoff=PATIENT, stop=stop)
    with Clerking(platform, member.id, member.keys, CommitteeStore(file), stop):
        line.send("ready")
        line.recv()
    line.send(ASKED)


async def run(
    processes: PlatformProcesses,
    admin: Platform,
    fleet: LoadGenerator,
    members: list[SimulatedDevice],
    parameters: dict[str, Any],
    serving: Sequence[psutil.Process] = (),
) -> Measured:
    """One task from its start to its end."""
    secure, model = bool(parameters), save({"weight": np.zeros(ELEMENTS, np.float32)})
    rounds = ROUNDS.get(len(members), FEW_ROUNDS)
    task = admin.create_task(
        name=f"{'secure' if secure else 'clear'} {len(members)}", preset="fedavg", rounds=rounds,
        model_digests=[admin.upload_model(model)], min_devices=len(members), quorum=1.0, round_seconds=300.0,
        privacy="uniform" if secure else "none", parameters=parameters, training={"clip_norm": 1.0},
    ).id  # fmt: skip
    await fleet.enrol(task, members[:CLERKS])
    await fleet.enrol(task, members[CLERKS:], no_clerk=True)  # these devices serve no duties
    before = spent(processes, serving)
    admin.start_task(task)
    summary = await fleet.run(task, members, Masking())
    assert summary.state == "finished", admin.task(task).reason
    after = spent(processes, serving)
    result = list(admin.rounds(task))
    unmasked = {event.round: event.at for event in admin.events(task) if event.kind == "sum.unmasked"}
    last = {item.number: max(p.delivered_at for p in admin.round(task, item.number).participations) for item in result}
    counting = statistics.median(unmasked[number] - last[number] for number in unmasked) if unmasked else 0.0
    took = statistics.median(item.done_at - item.opened_at for item in result)
    return Measured(len(result), took, counting, {name: (after[name] - before[name]) / len(result) for name in before})


def spent(processes: PlatformProcesses, serving: Sequence[psutil.Process]) -> dict[str, float]:
    """CPU time of every service, of the fleet, and of the clerks together."""
    times = [process.cpu_times() for process in serving]
    return cpu_seconds(processes) | {"clerks": sum(time.user + time.system for time in times)}


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [20, 250])
