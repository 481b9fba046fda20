"""Coterie: learning among devices whose owners know and trust each other.

from coterie import Agent           a device's agent
from coterie import TorchLearner    a torch module with its data, for an agent; NumpyLearner needs no torch
from coterie import Platform        the platform over REST
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.agent import Agent as Agent
    from coterie.client import Platform as Platform
    from coterie.figures import Metric as Metric
    from coterie.learner import Learner as Learner
    from coterie.numpy_learner import NumpyLearner as NumpyLearner
    from coterie.torch_learner import TorchLearner as TorchLearner

__all__ = ["Agent", "Learner", "Metric", "NumpyLearner", "Platform", "TorchLearner"]
_HOMES = {
    "Agent": "agent",
    "Learner": "learner",
    "Metric": "figures",
    "NumpyLearner": "numpy_learner",
    "Platform": "client",
    "TorchLearner": "torch_learner",
}


def __getattr__(name: str) -> Any:
    """Imports what is asked for, so that `import coterie` costs nothing and works without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'coterie' has no attribute {name!r}")
    return getattr(import_module(f"coterie.{_HOMES[name]}"), name)
