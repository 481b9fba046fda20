"""Heartbeats in a separate thread, so that a device that trains for minutes still counts as alive."""

from __future__ import annotations

import logging
import threading
from types import TracebackType

from coterie.client import Platform
from coterie.errors import CoterieError
from coterie.protocol.transport import Backoff, Interrupted, Stop

_log = logging.getLogger("coterie.agent.heartbeat")


class Heartbeat:
    """Beats from `with` to its end; failures are logged and the next beat comes all the same."""

    def __init__(self, url: str, api_key: str, device_id: str, *, seconds: float = 15.0, verify: bool | str = True):
        self._stop = Stop()
        # A beat that failed is worth no patience: the next one says the same.
        self._platform = Platform(url, api_key, backoff=Backoff(patience_seconds=0.0), stop=self._stop, verify=verify)
        self._device_id, self._seconds = device_id, seconds
        self._thread = threading.Thread(target=self._beat, name=f"heartbeat-{device_id}", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(timeout=5.0)
        self._platform.close()

    def _beat(self) -> None:
        while not self._stop.is_set:
            try:
                self._platform.heartbeat(self._device_id)
            except CoterieError as error:
                _log.debug("no heartbeat: %s", error)
            except Interrupted:
                return
            if self._stop.wait(self._seconds):
                return
