"""Identities of a whole fleet: which model each device joins, and how well the groups match a known truth. [DPVD]

The rule itself runs on the device (`coterie.learning.model_choice`); here it is applied to tables device × model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from coterie.learning import model_choice as device
from services.kit.errors import InvalidInput

NO_MODEL = -1
"""The identity of a device that cannot score any model."""


class InvalidIdentities(InvalidInput):
    """A table of losses, similarities or labels that makes no sense."""


@dataclass(frozen=True, slots=True)
class Identities:
    """Model of each device (`NO_MODEL` where it has no data for any) and the devices left out, by index."""

    model: NDArray[np.int64]
    without_data: tuple[int, ...]


def choose_models(
    loss: ArrayLike, similarity: ArrayLike | None, weight: float, *, relative_loss: bool = False
) -> NDArray[np.int64]:
    """argmax_k λ S_ik − (1 − λ) L_ik for each device, ties to the lowest k.

    loss: L, shape (devices, K).  similarity: S, same shape, or None in the first round.  weight: λ in [0, 1].
    """
    if np.ndim(loss) != 2 and np.size(loss):
        raise InvalidIdentities(f"loss must be a table device × model, not an array of shape {np.shape(loss)}")
    if len(np.asarray(loss)) == 0:  # no devices
        return np.empty(0, dtype=np.int64)
    try:
        return device.choose(loss, similarity, weight, relative_loss=relative_loss)
    except ValueError as error:
        raise InvalidIdentities(str(error)) from error


def identify(
    loss: ArrayLike, similarity: ArrayLike | None, weight: float, *, relative_loss: bool = False
) -> Identities:
    """`choose_models` for a fleet in which a device may lack data: an all-infinite row of losses gets `NO_MODEL`."""
    model = choose_models(loss, similarity, weight, relative_loss=relative_loss)
    absent = np.isinf(np.asarray(loss, dtype=float)).all(axis=-1) if model.size else np.empty(0, dtype=bool)
    return Identities(np.where(absent, NO_MODEL, model), tuple(int(i) for i in np.flatnonzero(absent)))


def clustering_accuracy(chosen: ArrayLike, truth: ArrayLike) -> float:
    """The share of devices grouped as in `truth`, after the best matching of model numbers to true labels.

    Model numbers carry no meaning, so the confusion table is matched by the Hungarian method. NaN with no devices.
    """
    model, label = np.asarray(chosen), np.asarray(truth)
    if model.shape != label.shape or model.ndim != 1:
        raise InvalidIdentities(f"{model.size} identities for {label.size} true labels; give one each")
    if not model.size:
        return float("nan")
    known = model >= 0
    table = np.zeros((int(max(model.max(), 0)) + 1, int(label.max()) + 1))
    np.add.at(table, (model[known], label[known]), 1.0)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / model.size)
