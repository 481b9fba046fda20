"""Coterie: learning among devices whose owners know and trust each other.

from coterie import Agent           a device's agent
from coterie import TorchLearner    a torch module with its data, for an agent; NumpyLearner needs no torch
from coterie import Platform        the platform over REST
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.agent.agent import Agent as Agent
    from coterie.client import Platform as Platform
    from coterie.learning.learner import Learner as Learner
    from coterie.learning.metrics import Metric as Metric
    from coterie.learning.numpy_learner import NumpyLearner as NumpyLearner
    from coterie.learning.torch_learner import TorchLearner as TorchLearner

__all__ = ["Agent", "Learner", "Metric", "NumpyLearner", "Platform", "TorchLearner"]
_MODULES = {
    "Agent": "agent.agent",
    "Learner": "learning.learner",
    "Metric": "learning.metrics",
    "NumpyLearner": "learning.numpy_learner",
    "Platform": "client",
    "TorchLearner": "learning.torch_learner",
}


def __getattr__(name: str) -> Any:
    """Imports what is asked for, so that `import coterie` costs nothing and works without torch."""
    if name not in _MODULES:
        raise AttributeError(f"module 'coterie' has no attribute {name!r}")
    return getattr(import_module(f"coterie.{_MODULES[name]}"), name)
