"""Many small tasks at once, or many rounds in a row: `python bench/crowd.py [tasks devices rounds]` or `--long ROUNDS`.

By default 50 tasks of 20 devices each and 6 rounds, all at the same time: processor time of each service for an update.
With `--long`, one task of 20 devices and ROUNDS rounds: each service's resident memory on the way, and what an update
leaves on the disk.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import psutil
from rounds import cpu_seconds
from safetensors.numpy import save

from coterie.client import Platform
from coterie.protocol.transport import Backoff
from coterie_cli.load_generator import LoadGenerator, RandomWorker, SimulatedDevice
from coterie_cli.processes import PlatformProcesses

LOOKS = 10
PATIENT = Backoff(patience_seconds=120.0)


def main(arguments: list[str]) -> None:
    """Start a platform and measure."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    is_long = arguments[:1] == ["--long"]
    tasks, devices, rounds = (1, 20, int(arguments[1])) if is_long else map(int, arguments or ("50", "20", "6"))
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as folder:
        processes = PlatformProcesses.on_free_ports(Path(folder), {"COTERIE_LOG_LEVEL": "WARNING"})
        processes.start(wait_seconds=120.0)
        try:
            asyncio.run(measure(processes, tasks, devices, rounds, is_long=is_long))
        finally:
            processes.stop()


async def measure(processes: PlatformProcesses, tasks: int, devices: int, rounds: int, *, is_long: bool) -> None:
    """Run all tasks concurrently and print the cost of an update."""
    with Platform(processes.url, processes.admin_key(), backoff=PATIENT) as admin:
        digest = admin.upload_model(save({"weight": np.zeros((10, 16), np.float32)}))
        wanted = {
            "preset": "fedavg",
            "model_digests": [digest],
            "rounds": rounds,
            "min_devices": devices,
        }
        ids = [admin.create_task(name=f"bench-{n}", auto_start=True, quorum=1.0, **wanted).id for n in range(tasks)]
        token = admin.issue_token(admin.create_owner("bench").id, uses=tasks * devices).token
    fleet = LoadGenerator(processes.url)
    async with fleet.open(tasks * devices):
        members = await fleet.register(token, [f"bench-{number}" for number in range(tasks * devices)])
        crews = [members[place * devices :][:devices] for place in range(tasks)]
        before, written, seen = cpu_seconds(processes), stored_bytes(processes.data), 0

        def look(_: SimulatedDevice, item: object, __: str) -> None:
            nonlocal seen
            seen += 1
            if is_long and seen % (max(rounds // LOOKS, 1) * devices) == 0:
                memory = {n: psutil.Process(p.pid).memory_info().rss >> 20 for n, p in processes.running.items()}
                print(f"after {seen // devices:5} rounds, MB: " + ", ".join(f"{n} {mb}" for n, mb in memory.items()))

        async def play(task: str, crew: list[SimulatedDevice]) -> None:
            await fleet.enrol(task, crew)
            summary = await fleet.run(task, crew, RandomWorker(), on_delivery=look)
            assert summary.state == "finished", summary

        await asyncio.gather(*(play(task, crew) for task, crew in zip(ids, crews, strict=True)))
        after = cpu_seconds(processes)
    spent = {name: (after[name] - before[name]) / (tasks * devices * rounds) * 1000 for name in before}
    print(f"{tasks} tasks of {devices} devices, {rounds} rounds: CPU ms an update: ", end="")
    print(", ".join(f"{name} {ms:.2f}" for name, ms in spent.items()), f"— together {sum(spent.values()):.2f}")
    left = stored_bytes(processes.data) - written
    print(f"left on the disk: {left / (tasks * devices * rounds) / 1024:.2f} KB an update")


def stored_bytes(folder: Path) -> int:
    """Bytes of all files, but for what SQLite writes ahead and truncates again."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and "-wal" not in file.name)


if __name__ == "__main__":
    main(sys.argv[1:])
