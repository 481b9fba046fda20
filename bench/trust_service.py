"""Figures of the trust registry as a running service: real process, real gRPC, SQLite.

    python bench/trust_service.py [interactions]

Records interactions (1,000,000 unless told) in batches of 10,000 among 250 devices with 1,000 ties, and compares the
time of one score after the first thousand with the time after all of them. Then imports a synthetic graph of the size
of Facebook's (4,039 devices, 88,234 ties) and asks for the matrix of 250 participants.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from coterie_api.trust.v1 import trust_pb2 as pb
from coterie_api.trust.v1.trust_pb2_grpc import RegistryStub, TrustStub
from services.kit.rpc.channels import open_channel
from services.kit.runtime.settings import ServiceSettings

DEVICES, TIES, BATCH = 250, 1_000, 10_000
FACEBOOK_DEVICES, FACEBOOK_TIES = 4_039, 88_234


def main() -> None:
    """Starts a registry in a temporary folder, measures, stops it."""
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as folder:
        environment = {
            **os.environ,
            "COTERIE_DATA_DIR": folder,
            "COTERIE_DATABASE_URL": "",
            "COTERIE_LOG_LEVEL": "WARNING",
        }
        process = subprocess.Popen([sys.executable, "-m", "services.trust"], env=environment)
        try:
            asyncio.run(measure(total, Path(folder)))
        finally:
            process.terminate()
            process.wait(timeout=30)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"registry: {spent.ru_utime + spent.ru_stime:.1f} s of processor, {spent.ru_maxrss / 1024:.0f} MB at most")


async def measure(total: int, folder: Path) -> None:
    """Prints every figure."""
    print(f"cores: {os.cpu_count()}, load: {os.getloadavg()[0]:.1f}")
    settings = ServiceSettings(data_dir=folder)
    async with open_channel(settings, settings.trust_address) as channel:
        registry, trust = RegistryStub(channel), TrustStub(channel)
        devices = await make_devices(registry, trust, "bench", DEVICES)
        generator = np.random.default_rng(1)
        ties = np.argwhere(np.triu(np.ones((DEVICES, DEVICES)), 1))
        ties = ties[generator.choice(len(ties), TIES, replace=False)]
        await send(trust, devices, ties, np.arange(TIES), "first ")
        few = await score_seconds(trust, devices, ties)
        rest = np.tile(np.arange(TIES), total // TIES)
        seconds = await timed(lambda: send(trust, devices, ties, rest, ""))
        many = await score_seconds(trust, devices, ties)
        print(f"interactions: {len(rest):,} recorded in {seconds:.1f} s, {len(rest) / seconds:,.0f}/s")
        print(f"score after {TIES:,}: {few * 1e3:.2f} ms, after {len(rest) + TIES:,}: {many * 1e3:.2f} ms, ", end="")
        print(f"ratio {many / few:.2f}")
        await measure_matrix(registry, trust, generator)


async def measure_matrix(registry: Any, trust: Any, generator: np.random.Generator) -> None:
    """The participants' matrix on a graph of Facebook's size (synthetic), first and again."""
    devices = await make_devices(registry, trust, "town", FACEBOOK_DEVICES)
    keys = generator.choice(FACEBOOK_DEVICES**2, 3 * FACEBOOK_TIES, replace=False)
    low, high = keys // FACEBOOK_DEVICES, keys % FACEBOOK_DEVICES
    ties = np.stack((low, high), axis=1)[low < high][:FACEBOOK_TIES]
    await send(trust, devices, ties, np.arange(len(ties)), "town ")
    some = [devices[k] for k in generator.choice(FACEBOOK_DEVICES, 250, replace=False)]
    request = pb.GetMatrixRequest(device_ids=some)
    first = await timed(lambda: trust.GetMatrix(request, timeout=60))
    again = median([await timed(lambda: trust.GetMatrix(request, timeout=60)) for _ in range(5)])
    result = await trust.GetMatrix(request, timeout=60)
    graph = f"{len(devices):,} devices with {len(ties):,} ties (synthetic)"
    print(f"matrix of 250 among {graph}, {len(result.trust):,} pairs with trust: ", end="")
    print(f"first {first:.2f} s, then {again * 1e3:.0f} ms")


async def make_devices(registry: Any, trust: Any, owner: str, count: int) -> list[str]:
    """Ids of `count` imported devices."""

    async def chunks() -> AsyncIterator[pb.ImportChunk]:
        yield pb.ImportChunk(header=pb.ImportHeader(name=owner, owner_name=owner, synthetic=True))
        rows = [pb.ImportRow(line=k + 1, device=pb.Device(name=f"{owner} {k}")) for k in range(count)]
        for start in range(0, count, 1_000):
            yield pb.ImportChunk(rows=rows[start : start + 1_000])

    await trust.Import(chunks(), timeout=120, wait_for_ready=True)
    owners = (await registry.ListOwners(pb.ListOwnersRequest())).owners
    owner_id = next(item.id for item in owners if item.name == owner)
    ids: list[str] = []
    cursor = ""
    while len(ids) < count:
        page = await registry.ListDevices(pb.ListDevicesRequest(owner_id=owner_id, limit=500, cursor=cursor))
        ids += [device.id for device in page.devices]
        cursor = page.next_cursor
    return ids


async def send(trust: Any, devices: list[str], ties: Any, which: Any, prefix: str) -> None:
    """Records one interaction for each tie in `which`, batch by batch, two batches on the way at once."""
    now = time.time()
    gate = asyncio.Semaphore(2)

    async def record(start: int) -> None:
        async with gate:
            batch = [
                pb.Interaction(
                    id=f"{prefix}{start + k}",
                    device_a=devices[ties[tie][0]],
                    device_b=devices[ties[tie][1]],
                    positive=(start + k) % 10 != 0,
                    duration_seconds=30.0,
                    at=now - 1e6 + start + k,
                    kind="delivered",
                )
                for k, tie in enumerate(which[start : start + BATCH].tolist())
            ]
            await trust.RecordInteractions(pb.RecordInteractionsRequest(interactions=batch), timeout=60)

    await asyncio.gather(*(record(start) for start in range(0, len(which), BATCH)))


async def score_seconds(trust: Any, devices: list[str], ties: Any) -> float:
    """Median time of one explained score over gRPC."""
    times = []
    for a, b in ties[:200].tolist():
        request = pb.ExplainTrustRequest(device_a=devices[a], device_b=devices[b])
        times.append(await timed(partial(trust.ExplainTrust, request)))
    return median(times)


async def timed(act: Callable[[], Awaitable[Any]]) -> float:
    """Seconds an act takes."""
    started = time.perf_counter()
    await act()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
