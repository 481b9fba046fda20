"""Where the noise of a real device comes from."""

from __future__ import annotations

import secrets

import numpy as np


def fresh_generator() -> np.random.Generator:
    """A generator seeded with 256 bits from the operating system, different at every call.

    Simulations and tests pass a seeded generator instead; a device never does, because noise that can be drawn again
    can be subtracted. The stream is statistical, not cryptographic: draw a new generator for every release.
    """
    return np.random.Generator(np.random.PCG64DXSM(secrets.randbits(256)))
