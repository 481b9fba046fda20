"""Coterie: learning among devices whose owners know and trust each other.

from coterie import Agent       a device's agent (needs torch)
from coterie import Platform    the platform over REST
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.agent import Agent as Agent
    from coterie.client import Platform as Platform

__all__ = ["Agent", "Platform"]


def __getattr__(name: str) -> Any:
    """Imports what is asked for, so that `import coterie` costs nothing and works without torch."""
    if name == "Agent":
        from coterie.agent import Agent

        return Agent
    if name == "Platform":
        from coterie.client import Platform

        return Platform
    raise AttributeError(f"module 'coterie' has no attribute {name!r}")
