"""Round overhead over real REST: `python bench/rounds.py [--gateways N] [devices …]`, by default 20 and 1,000 and one.

Starts the whole platform on free ports in a temporary folder, lets a fleet deliver random updates to a tiny model, and
prints the median time from one round's opening to the next one's. No training, so this is the platform's own cost.
With several gateways each has its share of the devices.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import numpy as np
import psutil
from safetensors.numpy import save

from coterie.client import Platform
from coterie.protocol.transport import Backoff
from coterie_cli.load_generator import LoadGenerator, LoadSummary, RandomWorker
from coterie_cli.processes import PlatformProcesses, die_with_parent, free_ports

LIMITS_SECONDS = {20: 0.2, 1000: 5.0}
ROUNDS = {20: 30, 1000: 6}
SETTINGS = {"COTERIE_LOG_LEVEL": "WARNING", "COTERIE_MAX_CONNECTIONS_PER_ADDRESS": "0"}
"""All devices are behind one address here."""


def main(sizes: list[int], gateways: int = 1) -> None:
    """Measures each size on one platform."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as folder:
        processes = PlatformProcesses.on_free_ports(Path(folder), SETTINGS)
        processes.start(wait_seconds=120.0)
        try:
            urls = [processes.url, *(another_gateway(processes, number) for number in range(2, gateways + 1))]
            for devices in sizes:
                measure(processes, devices, urls)
        finally:
            for number in range(2, gateways + 1):
                processes.stop_one(f"gateway-{number}")
            processes.stop()


def another_gateway(processes: PlatformProcesses, number: int) -> str:
    """Starts a further gateway of the same platform; where it answers."""
    port = free_ports(1)[0]
    settings = {**os.environ, **processes.variables(), **processes.environment, "COTERIE_GATEWAY_PORT": str(port)}
    command = [sys.executable, "-m", "services.gateway"]
    processes.running[f"gateway-{number}"] = subprocess.Popen(command, env=settings, preexec_fn=die_with_parent)
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 60.0
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{url}/health/ready", timeout=5.0, trust_env=False).status_code == 200:
                return url
        except httpx.TransportError:
            time.sleep(0.1)
    sys.exit(f"gateway {number} was not healthy after 60 s")


def measure(processes: PlatformProcesses, devices: int, urls: list[str]) -> None:
    """Runs one task and prints how long its rounds took."""
    rounds = ROUNDS.get(devices, 10)
    model = save({"weight": np.zeros((10, 16), np.float32), "bias": np.zeros(10, np.float32)})
    with Platform(processes.url, processes.admin_key(), backoff=Backoff(patience_seconds=120.0)) as admin:
        task = admin.create_task(
            name=f"bench-{devices}",
            preset="fedavg",
            model_digests=[admin.upload_model(model)],
            rounds=rounds,
            min_devices=devices,
            quorum=1.0,
            auto_start=True,
        ).id
        token = admin.issue_token(admin.create_owner("bench").id, uses=devices).token
        summary, before = asyncio.run(_run(processes, urls, token, task, devices))
        after = cpu_seconds(processes)
        result = list(admin.rounds(task))
    opened = [item.opened_at for item in result]
    took = [later - earlier for earlier, later in itertools.pairwise(opened)]
    took.append(result[-1].done_at - result[-1].opened_at)
    median, limit = statistics.median(took), LIMITS_SECONDS.get(devices)
    goal = f"  (goal under {limit:g} s)" if limit else ""
    print(f"{devices:5} devices, {len(result)} rounds, {os.cpu_count()} cores, task {summary.state}")
    print(f"      median {median * 1000:.0f} ms a round{goal}, worst {max(took) * 1000:.0f} ms")
    print(f"      {summary.requests} requests, {summary.requests / summary.seconds:.0f}/s")
    spent = {name: (after[name] - before[name]) / len(result) * 1000 for name in before}
    print("      CPU a round: " + ", ".join(f"{name} {milliseconds:.0f} ms" for name, milliseconds in spent.items()))


def cpu_seconds(processes: PlatformProcesses) -> dict[str, float]:
    """CPU time of every service and of this process, the fleet, so far: honest on a busy machine too."""
    result = {name: psutil.Process(process.pid) for name, process in processes.running.items()}
    result["fleet"] = psutil.Process()
    times = {name: process.cpu_times() for name, process in result.items()}
    return {name: item.user + item.system for name, item in times.items()}


async def _run(
    processes: PlatformProcesses, urls: list[str], token: str, task: str, devices: int
) -> tuple[LoadSummary, dict[str, float]]:
    """Run one load generator per gateway; return the summary and the CPU times before it."""
    fleets = [LoadGenerator(url) for url in urls]
    async with AsyncExitStack() as stack:
        crews = []
        for place, fleet in enumerate(fleets):
            names = [f"bench-{devices}-{index}" for index in range(place, devices, len(fleets))]
            await stack.enter_async_context(fleet.open(len(names)))
            crews.append(await fleet.register(token, names))
        before = cpu_seconds(processes)
        pairs = list(zip(fleets, crews, strict=True))
        await asyncio.gather(*(fleet.enrol(task, crew) for fleet, crew in pairs))
        summaries = await asyncio.gather(*(fleet.run(task, crew, RandomWorker()) for fleet, crew in pairs))
    result = summaries[0]
    result.requests = sum(summary.requests for summary in summaries)
    return result, before


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("devices", type=int, nargs="*", default=[20, 1000])
    parser.add_argument("--gateways", type=int, default=1)
    asked = parser.parse_args()
    main(asked.devices, asked.gateways)
