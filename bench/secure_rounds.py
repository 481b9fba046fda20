"""A secure round against a clear one, over real REST: `python bench/secure_rounds.py [devices …]`, else 20 and 250.

Starts the whole platform on free ports in a temporary folder. A fleet delivers random updates of a model of 7,850
numbers, first in the clear, then masked and noised, to the same platform in the same run; four of its devices are
clerks and count. No training: this is what hiding costs. Prints the median round of each, how long counting took from
the last delivery to the opened sum, and processor time.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rounds import cpu_seconds
from safetensors.numpy import save

from coterie.clerking import Clerking
from coterie.client import Platform
from coterie.privacy.stream import FreshStream
from coterie.records import WorkItem
from coterie.sums.cabinet import Cabinet
from coterie.sums.contribution import contribution
from coterie.sums.terms import Terms
from coterie.sums.uploads import FORM, make_upload
from coterie.transport import Backoff, Stop
from coterie.work import Delivery, SumSeal
from coterie_cli.fleet import Fleet, Member, RandomWorker
from coterie_cli.processes import PlatformProcesses

CLERKS, ELEMENTS, ROUNDS = 4, 7_850, 5
PATIENT = Backoff(patience_seconds=120.0)
SECURE = {"sums": {"mode": "secure"}, "privacy": {"noise_multiplier": 1.0}}


class Masking(RandomWorker):
    """Random changes; masked where the work has terms."""

    blocking = True

    def deliver(self, member: Member, work: WorkItem, model: Any) -> Delivery:
        """The change as it is, or clipped, noised, masked, and its seeds sealed to the clerks."""
        found = super().deliver(member, work, model)
        if not work.sum:
            return found
        assert member.keys is not None
        assert found.tensors is not None
        terms = Terms.read(work.sum)
        (change,) = found.tensors.values()
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
    fleet = Fleet(processes.url)
    with Platform(processes.url, processes.admin_key(), backoff=PATIENT) as admin:
        async with fleet.open(devices):
            members: list[Member] = []
            for number in range(CLERKS + 1):
                count = 1 if number < CLERKS else devices - CLERKS
                token = admin.issue_token(admin.create_owner(f"owner {number}").id, uses=count).token
                members += await fleet.register(token, [f"b{devices}-{number}-{at}" for at in range(count)])
            clear = await run(processes, admin, fleet, members, {})
            with clerks(processes, members[:CLERKS], folder / f"clerks-{devices}"):
                secure = await run(processes, admin, fleet, members, SECURE)
    print(f"{devices:5} devices, {ELEMENTS} numbers, {ROUNDS} rounds, {os.cpu_count()} cores", flush=True)
    for name, (took, counting, cpu) in (("clear", clear), ("secure", secure)):
        counted = f", counting {counting * 1000:.0f} ms" if counting else ""
        spent = ", ".join(f"{who} {seconds * 1000:.0f}" for who, seconds in cpu.items() if seconds >= 0.0005)
        print(f"      {name}: median {took * 1000:.0f} ms a round{counted}; CPU a round, ms: {spent}")
    print(f"      secure takes {secure[0] / clear[0]:.2f} times a clear round", flush=True)


@contextmanager
def clerks(processes: PlatformProcesses, chosen: list[Member], folder: Path) -> Iterator[None]:
    """Devices that serve as clerks, each in a thread of this process."""
    folder.mkdir()
    with ExitStack() as stack:
        for member in chosen:
            assert member.keys is not None
            stop = Stop()
            line = Platform(processes.url, member.api_key, backoff=PATIENT, stop=stop)
            stack.enter_context(Clerking(line, member.id, member.keys, Cabinet(folder / f"{member.name}.db"), stop))
        yield


async def run(
    processes: PlatformProcesses, admin: Platform, fleet: Fleet, members: list[Member], parameters: dict[str, Any]
) -> tuple[float, float, dict[str, float]]:
    """Median seconds of a round and of its counting, and processor seconds a round of everybody."""
    secure, model = bool(parameters), save({"weight": np.zeros(ELEMENTS, np.float32)})
    task = admin.create_task(
        name=f"{'secure' if secure else 'clear'} {len(members)}", preset="fedavg", rounds=ROUNDS,
        model_digests=[admin.upload_model(model)], min_devices=len(members), quorum=1.0, round_seconds=300.0,
        privacy="uniform" if secure else "none", parameters=parameters, training={"clip_norm": 1.0},
    ).id  # fmt: skip
    await fleet.enrol(task, members[:CLERKS])
    await fleet.enrol(task, members[CLERKS:], no_clerk=True)  # nobody there serves duties
    before = cpu_seconds(processes)
    admin.start_task(task)
    summary = await fleet.run(task, members, Masking())
    assert summary.state == "finished", admin.task(task).reason
    after = cpu_seconds(processes)
    found = list(admin.rounds(task))
    told = {event.round: event.at for event in admin.events(task) if event.kind == "sum.told"}
    last = {each.number: max(p.delivered_at for p in admin.round(task, each.number).participations) for each in found}
    counting = statistics.median(told[number] - last[number] for number in told) if told else 0.0
    took = statistics.median(each.done_at - each.opened_at for each in found)
    return took, counting, {name: (after[name] - before[name]) / len(found) for name in before}


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [20, 250])
