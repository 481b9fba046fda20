"""Reproducible noise for simulations and tests. A device never imports this module."""

from __future__ import annotations

import hashlib
from typing import final

from coterie.privacy.stream import Stream


@final
class SeededStream(Stream):
    """The same words for the same seeds, such as `SeededStream(7, "device 3", 12)`."""

    def __init__(self, *seeds: int | str) -> None:
        if not seeds:
            raise ValueError("a seeded stream needs a seed; a device's own noise comes from FreshStream")
        super().__init__(hashlib.sha256(f"coterie simulated noise 1\n{seeds!r}".encode()).digest())
