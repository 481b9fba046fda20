"""A TCP proxy that does what networks do: it delays, resets, loses, falls silent and changes bytes."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import random
import socket
import struct
import threading

CHUNK_BYTES = 64 << 10
HEAD_END = b"\r\n\r\n"


class Trouble(enum.Enum):
    """What a link suffers from. CALM: nothing."""

    CALM = "calm"
    LATENCY = "latency"
    """Every piece of a message takes its time."""
    RESETS = "resets"
    """Connections break off in the middle."""
    PARTITION = "partition"
    """New connections fail, and open ones are cut."""
    HALF_OPEN = "half-open"
    """Connections stand, and nothing comes through."""
    CORRUPTION = "corruption"
    """Bytes of HTTP bodies change on the way."""


class Proxy:
    """A link to a port on this machine. Runs in its own thread; `trouble` may be set at any time."""

    def __init__(self, port: int, target: int, seed: int) -> None:
        self.port, self._target, self._draw = port, target, random.Random(seed)
        self._trouble = Trouble.CALM
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._thread.start()
        assert self._ready.wait(20.0)

    @property
    def url(self) -> str:
        """Where it is reached by HTTP."""
        return f"http://127.0.0.1:{self.port}"

    def suffer(self, trouble: Trouble) -> None:
        """Behaves so from now on."""
        self._loop.call_soon_threadsafe(self._change, trouble)

    def close(self) -> None:
        """Gives the port back."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self.port))
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for writer in list(self._open):
            writer.transport.abort()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    def _change(self, trouble: Trouble) -> None:
        was, self._trouble = self._trouble, trouble
        # Bytes that a silent link has swallowed never come: its connections must be opened again.
        if trouble is Trouble.PARTITION or was is Trouble.HALF_OPEN:
            for writer in list(self._open):
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._trouble is Trouble.PARTITION:
            _reset(writer)
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            _reset(writer)
            return
        ends = {writer, far_writer}
        self._open |= ends
        try:
            ways = [self._pass(reader, far_writer), self._pass(far_reader, writer)]
            done, pending = await asyncio.wait(
                [asyncio.ensure_future(way) for way in ways], return_when=asyncio.FIRST_COMPLETED
            )
            for way in pending:
                way.cancel()
            await asyncio.gather(*done, *pending, return_exceptions=True)
        finally:
            self._open -= ends
            for end in ends:
                with contextlib.suppress(OSError):
                    end.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(CHUNK_BYTES):
            match self._trouble:
                case Trouble.LATENCY:
                    await asyncio.sleep(self._draw.uniform(0.05, 0.3))
                case Trouble.RESETS if self._draw.random() < 0.3:
                    _reset(writer)
                    return
                case Trouble.HALF_OPEN:
                    continue
                case Trouble.CORRUPTION if self._draw.random() < 0.5:
                    piece = corrupted(piece)
                case _:
                    pass
            writer.write(piece)
            await writer.drain()


def corrupted(piece: bytes) -> bytes:
    """A message whose body is another: an answer's JSON that is none, or the last byte of a file changed.

    Heads and what devices say in JSON stay as they are: a plain connection cannot tell a changed number in them from a
    true one, which is what TLS is for.
    """
    head, end, body = piece.partition(HEAD_END)
    if not end or not body:
        return piece
    if body.startswith((b"{", b"[")):
        return head + end + b"\x00" + body[1:] if head.startswith(b"HTTP/") else piece
    return head + end + body[:-1] + bytes([body[-1] ^ 0xFF])


def _reset(writer: asyncio.StreamWriter) -> None:
    result = writer.get_extra_info("socket")
    if result is not None:
        with contextlib.suppress(OSError):
            result.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
