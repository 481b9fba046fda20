"""Requests per second and CPU per request of the gateway: identity, heartbeats, work and updates, over loopback.

    python bench/gateway.py [--seconds 3] [--connections 16]

Starts trust, aggregation and one gateway process in a temporary folder, registers devices over REST, and loads each
route from this process over plain sockets (a keep-alive connection per device, one request at a time each). Updates go
to a task that does not exist: the gateway takes, stores and forwards the body, aggregation answers 404. Prints requests
per second, latency percentiles and the gateway's CPU per request.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import uvloop
from nacl.signing import SigningKey

START_SECONDS = 60.0
BODY = bytes(4096)
REPORT = '{"form": "mean", "weight": 3}'
UPDATE = f"Coterie-Update: {REPORT}\r\nCoterie-Digest: {hashlib.sha256(BODY).hexdigest()}\r\n".encode()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _platform(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """The registry and a gateway; yields the gateway's URL and process."""
    gateway = _free_port()
    environment = os.environ | {
        "COTERIE_DATA_DIR": str(folder),
        "COTERIE_GATEWAY_PORT": str(gateway),
        "COTERIE_LOG_LEVEL": "WARNING",
        "OMP_NUM_THREADS": "1",
    }
    processes = [
        subprocess.Popen([sys.executable, "-m", f"services.{name}"], env=environment)
        for name in ("trust", "aggregation", "gateway")
    ]
    try:
        yield f"http://127.0.0.1:{gateway}", psutil.Process(processes[-1].pid)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def _await_admin_key(url: str, folder: Path) -> str:
    """The bootstrap admin's key, once the platform answers to it."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError, httpx.TransportError):  # not up yet
            key = (folder / "admin.key").read_text().strip()
            if httpx.get(f"{url}/v1/me", headers={"Authorization": f"Bearer {key}"}).status_code == 200:
                return key
        time.sleep(0.1)
    raise TimeoutError(f"the platform did not answer within {START_SECONDS:g} s")


def _register(url: str, admin_key: str, count: int) -> list[tuple[str, str]]:
    """Devices with their API keys."""
    devices = []
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {admin_key}"}, timeout=30) as admin:
        owner = admin.post("/v1/owners", json={"name": "bench"}).raise_for_status().json()["id"]
        token = admin.post(f"/v1/owners/{owner}/tokens", json={"uses": count}).raise_for_status().json()["token"]
        for number in range(count):
            signing = SigningKey.generate()
            sealing = bytes(signing.to_curve25519_private_key().public_key)
            body = {
                "token": token,
                "name": f"bench-{number}",
                "signing_key": base64.b64encode(bytes(signing.verify_key)).decode(),
                "sealing_key": base64.b64encode(sealing).decode(),
                "proof": base64.b64encode(signing.sign(sealing).signature).decode(),
            }
            made = admin.post("/v1/devices", json=body).raise_for_status().json()
            devices.append((made["device"]["id"], made["api_key"]))
    return devices


async def _one_connection(port: int, request: bytes, expected: bytes, until: float) -> list[float]:
    """Seconds each request took on one keep-alive connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    taken = []
    while (started := time.perf_counter()) < until:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(expected):
            raise RuntimeError(f"expected {expected!r}, got {head[:200]!r}")
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                await reader.readexactly(int(value))
        taken.append(time.perf_counter() - started)
    writer.close()
    return taken


async def _load(port: int, requests: list[bytes], expected: bytes, seconds: float) -> tuple[float, list[float]]:
    """Requests a second, and all latencies in order."""
    started = time.perf_counter()
    item = await asyncio.gather(*(_one_connection(port, request, expected, started + seconds) for request in requests))
    elapsed = time.perf_counter() - started
    taken = sorted(value for values in item for value in values)
    return len(taken) / elapsed, taken


def _report(name: str, rate: float, taken: list[float], cpu_seconds: float) -> None:
    median, tail = taken[len(taken) // 2], taken[int(len(taken) * 0.99)]
    print(
        f"{name:<42} {rate:8.0f} requests/s   p50 {median * 1e3:6.2f} ms   p99 {tail * 1e3:6.2f} ms   "
        f"gateway {cpu_seconds / len(taken) * 1e6:5.0f} us CPU"
    )


def _cpu_seconds(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=16)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, _platform(Path(name)) as (url, gateway):
        devices = _register(url, _await_admin_key(url, Path(name)), options.connections)
        port = int(url.rpartition(":")[2])
        routes = {
            "GET /v1/me": ("GET /v1/me", b"", b"HTTP/1.1 200"),
            "POST /v1/devices/{id}/heartbeat": ("POST /v1/devices/{}/heartbeat", b"", b"HTTP/1.1 204"),
            "GET /v1/work": ("GET /v1/work?wait=0&task=tsk_none", b"", b"HTTP/1.1 200"),
            "PUT /v1/tasks/…/updates/{id}": ("PUT /v1/tasks/tsk_none/rounds/1/updates/{}", BODY, b"HTTP/1.1 404"),
        }
        print(f"{os.cpu_count()} cores, {options.connections} connections, {options.seconds:g} s a route")
        for label, (line, body, expected) in routes.items():
            requests = [
                f"{line.format(device)} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n".encode()
                + (UPDATE if body else b"")
                + b"Content-Length: %d\r\n\r\n" % len(body)
                + body
                for device, key in devices
            ]
            uvloop.run(_load(port, requests, expected, 0.5))  # fills caches and connections
            before = _cpu_seconds(gateway)
            rate, taken = uvloop.run(_load(port, requests, expected, options.seconds))
            _report(label, rate, taken, _cpu_seconds(gateway) - before)


if __name__ == "__main__":
    main()
