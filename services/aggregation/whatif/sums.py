"""`what-if sums`: masks, commitments and share sums of a secure sum whose seeds are in a file, and what is opened."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.secure_sums import canonical, masks
from coterie.secure_sums.canonical import NotCanonical
from coterie.secure_sums.terms import BadTerms, Terms, survivors_digest
from services.aggregation.errors import BadSums
from services.kit.runtime import whatif


class Device(whatif.Input):
    """id; values: whole numbers, one for each element; seeds: 32 bytes each in hexadecimal, one for each share."""

    id: str
    values: list[int]
    seeds: list[str]


class Input(whatif.Input):
    """terms as devices get them; survivors: ids of some of the devices."""

    terms: dict[str, Any]
    devices: list[Device]
    survivors: list[str]


def solve(input: Input) -> dict[str, Any]:
    """Everything in hexadecimal but the words, which are whole numbers; what belongs to a device is by its id."""
    terms = _terms(input.terms)
    devices = {device.id: device for device in sorted(input.devices, key=lambda item: item.id.encode())}
    alive = sorted(set(input.survivors), key=str.encode)
    _check_names(input, devices, alive)
    seeds = {name: _seeds(device, terms) for name, device in devices.items()}
    commitments = {name: masks.commitments(terms.digest, name, seeds[name]) for name in devices}
    masked = {name: _masked(device, terms, seeds[name]) for name, device in devices.items()}
    roots = {name: masks.root(entry) for name, entry in commitments.items()}
    share_sums = [
        masks.share_sum(terms.digest, k, [(name, seeds[name][k]) for name in alive], terms.elements, terms.bits)
        for k in range(terms.shares)
    ]
    masked_sum = np.zeros(terms.elements, masks.word_type(terms.bits))
    for name in alive:
        masked_sum += masked[name]
    committee = (len(terms.clerks), terms.threshold)
    return {
        "terms_digest": terms.digest.hex(),
        "withheld": masks.withheld_sets(*committee),
        "held": [terms.held(position) for position in range(len(terms.clerks))],
        "quorum": masks.commit_quorum(*committee),
        "commitments": {name: [item.hex() for item in listed] for name, listed in commitments.items()},
        "roots": {name: root.hex() for name, root in roots.items()},
        "masked": masked,
        "survivors_digest": survivors_digest(terms.digest, [(name, roots[name]) for name in alive]).hex(),
        "share_sums": share_sums,
        "share_digests": [masks.digest(words.tobytes()).hex() for words in share_sums],
        "masked_sum": masked_sum,
        "sum": masks.opened(masked_sum, share_sums),
    }


def _terms(document: dict[str, Any]) -> Terms:
    try:
        return Terms.read(canonical.encode(document))
    except (BadTerms, NotCanonical) as error:
        raise BadSums(f"terms: {error}") from error


def _check_names(input: Input, devices: dict[str, Device], alive: list[str]) -> None:
    if len(devices) != len(input.devices):
        raise BadSums("devices: an id is there twice")
    if len(alive) != len(input.survivors) or not set(alive) <= devices.keys():
        raise BadSums("survivors: name some of the devices, none twice")


def _seeds(device: Device, terms: Terms) -> list[bytes]:
    if len(device.seeds) != terms.shares:
        raise BadSums(
            f"devices.{device.id}.seeds: these terms have {terms.shares} shares, got {len(device.seeds)} seeds"
        )
    try:
        return [canonical.hexadecimal(seed, masks.SEED_BYTES, "a seed") for seed in device.seeds]
    except NotCanonical as error:
        raise BadSums(f"devices.{device.id}.seeds: {error}") from error


def _masked(device: Device, terms: Terms, seeds: list[bytes]) -> masks.Words:
    half = 1 << (terms.bits - 1)
    if len(device.values) != terms.elements or not all(-half <= value < half for value in device.values):
        raise BadSums(
            f"devices.{device.id}.values: these terms take {terms.elements} whole numbers of {terms.bits} bits"
        )
    return masks.masked(np.array(device.values, dtype=np.int64), terms.digest, device.id, seeds, terms.bits)
