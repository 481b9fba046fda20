"""Processes that a service, or a test that plays one, starts while it speaks gRPC."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import asyncio, subprocess
import services.topology.__main__
import grpc

async def main():
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    await channel.channel_ready()
    subprocess.run(["true"], preexec_fn=lambda: None, check=True)
    await channel.close()
    await server.stop(0)

asyncio.run(main())
"""


def test_a_child_is_forked_without_grpc_s_handlers() -> None:
    """They could hang a child between fork and exec."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=True)
    assert "fork" not in done.stderr
