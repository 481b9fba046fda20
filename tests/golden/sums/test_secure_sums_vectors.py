"""Every vector of the specification of secure sums, against the code that devices and clerks run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.protocol.keys import DeviceKeys
from coterie.secure_sums import masks
from coterie.secure_sums.canonical import encode
from coterie.secure_sums.grid import choose_grid
from coterie.secure_sums.terms import (
    Participants,
    Terms,
    answer_message,
    commit_message,
    offer_message,
    signed_by,
    survivors_digest,
    upload_message,
)

VECTORS = json.loads((Path(__file__).parent / "secure-sums-vectors.json").read_text())
SUMS = pytest.mark.parametrize("vector", VECTORS["sums"], ids=lambda v: f"{v['clerks']}-{v['threshold']}-{v['bits']}")

Vector = dict[str, Any]


def bytes_of(texts: list[str]) -> list[bytes]:
    return [bytes.fromhex(text) for text in texts]


@SUMS
def test_shares_and_their_holders(vector: Vector) -> None:
    clerks, threshold = vector["clerks"], vector["threshold"]
    assert [list(without) for without in masks.withheld_sets(clerks, threshold)] == vector["withheld"]
    assert [masks.held_shares(clerks, threshold, at) for at in range(clerks)] == vector["held"]
    assert masks.commit_quorum(clerks, threshold) == vector["quorum"]


@SUMS
def test_terms_and_participants(vector: Vector) -> None:
    terms = Terms.read(encode(vector["terms"]))
    assert terms.digest.hex() == vector["terms_digest"]
    assert json.loads(terms.text) == vector["terms"]
    participants = Participants.of({device["id"]: bytes.fromhex(device["signing_key"]) for device in vector["devices"]})
    assert Participants.read(participants.text) == participants
    participants.check(terms)
    for clerk in terms.clerks:
        message = offer_message(terms.place, clerk.device, clerk.session_key)
        assert signed_by(clerk.signing_key, message, clerk.signature)


@SUMS
def test_seeds_masks_and_upload_signatures(vector: Vector) -> None:
    digest = bytes.fromhex(vector["terms_digest"])
    for device in vector["devices"]:
        name, seeds = device["id"], bytes_of(device["seeds"])
        commitments = masks.commitments(digest, name, seeds)
        assert commitments == bytes_of(device["commitments"])
        assert masks.root(commitments).hex() == device["root"]
        assert masks.mask_key(digest, name, 0, seeds[0]).hex() == device["first_mask_key"]
        first = masks.mask_stream(digest, name, 0, seeds[0], vector["elements"], vector["bits"])
        assert first.tolist() == device["first_mask"]
        masked = masks.masked(np.array(device["values"]), digest, name, seeds, vector["bits"])
        assert masked.tolist() == device["masked"]
        message = upload_message(
            digest,
            name,
            masks.digest(masked.tobytes()),
            bytes.fromhex(device["root"]),
            bytes.fromhex(device["letter_key"]),
        )
        assert keys_of(device).sign(message).hex() == device["upload_signature"]
        assert keys_of(device).public().signing.hex() == device["signing_key"]


@SUMS
def test_survivors_share_sums_and_the_opened_sum(vector: Vector) -> None:
    digest, bits, elements = bytes.fromhex(vector["terms_digest"]), vector["bits"], vector["elements"]
    alive = [device for device in vector["devices"] if device["id"] in vector["survivors"]]
    survivors = [(device["id"], bytes.fromhex(device["root"])) for device in alive]
    chosen = survivors_digest(digest, survivors)
    assert chosen.hex() == vector["survivors_digest"]
    sums = [
        masks.share_sum(
            digest, k, [(device["id"], bytes.fromhex(device["seeds"][k])) for device in alive], elements, bits
        )
        for k in range(len(vector["withheld"]))
    ]
    assert [words.tolist() for words in sums] == vector["share_sums"]
    assert [masks.digest(words.tobytes()).hex() for words in sums] == vector["share_digests"]
    total = np.zeros(elements, masks.word_type(bits))
    for device in alive:
        total += np.array(device["masked"], masks.word_type(bits))
    assert total.tolist() == vector["masked_sum"]
    assert masks.opened(total, sums).tolist() == vector["sum"]
    first = next(device for device in vector["devices"] if device["id"] == vector["terms"]["clerks"][0]["device"])
    assert keys_of(first).sign(commit_message(digest, chosen)).hex() == vector["agreement_of_first_clerk"]
    held = {k: bytes.fromhex(vector["share_digests"][k]) for k in vector["held"][0]}
    assert keys_of(first).sign(answer_message(digest, chosen, held)).hex() == vector["answer_signature_of_first_clerk"]


@pytest.mark.parametrize("vector", VECTORS["grids"], ids=lambda v: f"{v['devices']}-{v['elements']}")
def test_grids(vector: Vector) -> None:
    grid = choose_grid(
        vector["devices"], vector["elements"], vector["clip_norm"], vector["noise_multiplier"], vector["honest"]
    )
    assert (grid.bits, grid.scale, grid.bound) == (vector["bits"], vector["scale"], vector["bound"])
    assert grid.share == pytest.approx(vector["share"], rel=1e-14)
    assert grid.tail == pytest.approx(vector["tail"], rel=1e-14)
    assert grid.largest_value(vector["survivors"]) == pytest.approx(vector["largest_value"], rel=1e-14)
    assert grid.largest_norm(vector["survivors"]) == pytest.approx(vector["largest_norm"], rel=1e-14)


def keys_of(device: Vector) -> DeviceKeys:
    return DeviceKeys(bytes.fromhex(device["signing_seed"]), bytes(32))
