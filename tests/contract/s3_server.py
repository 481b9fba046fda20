"""A real S3 API on loopback for tests: moto's server, which counts what is asked and may take its time over it."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

import pytest
from werkzeug.serving import make_server


class S3Server:
    """Counts requests by kind, and how many of a kind were under way at once."""

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._counting = threading.Lock()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        # The server's memory is its process's: each has its own bucket.
        self.bucket = f"coterie-{secrets.token_hex(6)}"
        self.delay_seconds = 0.0
        self.asked: Counter[str] = Counter()
        self.at_once: Counter[str] = Counter()
        self._present: Counter[str] = Counter()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        kind = environ["REQUEST_METHOD"]
        with self._counting:
            self.asked[kind] += 1
            self._present[kind] += 1
            self.at_once[kind] = max(self.at_once[kind], self._present[kind])
        try:
            time.sleep(self.delay_seconds)
            return list(self._app(environ, start_response))
        finally:
            with self._counting:
                self._present[kind] -= 1

    def reset_counts(self) -> None:
        """Forgets what was asked so far."""
        with self._counting:
            self.asked.clear()
            self.at_once.clear()

    @contextmanager
    def running(self) -> Iterator[S3Server]:
        """Answers while the block runs, with one empty bucket."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            with urlopen(Request(f"{self.url}/{self.bucket}", method="PUT"), timeout=20.0):
                pass
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


@contextmanager
def s3_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server, named by the variables of docs/howto/operations.md."""
    with S3Server().running() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        monkeypatch.setenv("AWS_REGION", "eu-central-1")
        yield server
