"""Sealed letters: what arrives, what the platform sees, and every way a letter is turned down."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from nacl.public import Box, PrivateKey, PublicKey

from coterie.protocol import letters
from coterie.protocol.keys import DeviceKeys
from coterie.protocol.letters import (
    CorruptLetter,
    Header,
    Letter,
    LetterError,
    ReplayedLetter,
    SeenLetters,
    Stranger,
    Subject,
    WrongRecipient,
    WrongRound,
    open_letter,
    read_header,
    seal,
)

ANNA, BERT = DeviceKeys.generate(), DeviceKeys.generate()
SUBJECT = Subject(task="digits", round=3, plan_version=7, kind="update")
HEADER = Header(SUBJECT, sender="anna", recipient="bert")
PEERS = {"anna": ANNA.public().sealing}
TENSORS = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.array([0.5, -1.0])}


def sealed(header: Header = HEADER, **options: int) -> bytes:
    return seal(header, TENSORS, ANNA, BERT.public().sealing, **options)


def opened(letter: bytes, **changes: object) -> Letter:
    arguments: dict[str, object] = {
        "keys": BERT,
        "recipient": "bert",
        "subject": SUBJECT,
        "peers": PEERS,
        "seen": SeenLetters(),
    }
    return open_letter(letter, **(arguments | changes))  # type: ignore[arg-type]  # overridden by name


def test_a_letter_arrives_as_it_was_written() -> None:
    letter = opened(sealed())
    assert letter.header == HEADER
    assert set(letter.tensors) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert letter.tensors[name].dtype == tensor.dtype
        np.testing.assert_array_equal(letter.tensors[name], tensor)


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
        arrays.arrays(
            st.sampled_from([np.float16, np.float32, np.float64, np.int64, np.bool_]),
            arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
        ),
        max_size=4,
    ),
    st.integers(1, 5000),
)
def test_any_tensors_survive_sealing(tensors: dict[str, np.ndarray], padding: int) -> None:
    letter = opened(seal(HEADER, tensors, ANNA, BERT.public().sealing, padding_bytes=padding))
    assert set(letter.tensors) == set(tensors)
    for name, tensor in tensors.items():
        assert letter.tensors[name].shape == tensor.shape
        np.testing.assert_array_equal(letter.tensors[name], tensor)


def test_tensors_in_another_memory_layout_survive_sealing() -> None:
    strange = {
        "transposed": np.arange(6.0).reshape(2, 3).T,
        "strided": np.arange(8.0)[::2],
        "big": np.arange(3, dtype=">f4"),
    }
    letter = opened(seal(HEADER, strange, ANNA, BERT.public().sealing))
    for name, tensor in strange.items():
        np.testing.assert_array_equal(letter.tensors[name], tensor)


def test_the_platform_sees_the_header_and_no_trace_of_the_content() -> None:
    planted = np.full(64, 1234.5678, dtype=np.float64)
    letter = seal(HEADER, {"planted": planted}, ANNA, BERT.public().sealing)
    assert read_header(letter) == HEADER
    assert planted[:1].tobytes() not in letter
    assert b"planted" not in letter
    assert seal(HEADER, {"planted": planted}, ANNA, BERT.public().sealing) != letter


def test_padding_hides_small_differences_in_size() -> None:
    sizes = {
        len(seal(HEADER, {"t": np.zeros(count)}, ANNA, BERT.public().sealing, padding_bytes=4096))
        for count in (1, 9, 99)
    }
    assert len(sizes) == 1
    assert len(sealed(padding_bytes=4096)) > len(sealed())


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_letter_with_any_byte_changed_is_never_accepted(data: st.DataObject) -> None:
    letter = bytearray(sealed())
    position = data.draw(st.integers(0, len(letter) - 1))
    letter[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(LetterError):
        opened(bytes(letter))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 400))
def test_a_letter_cut_short_or_made_longer_is_corrupt(cut: int) -> None:
    letter = sealed()
    with pytest.raises(CorruptLetter):
        opened(letter[: min(cut, len(letter) - 1)])
    with pytest.raises(CorruptLetter):
        opened(letter + bytes(cut + 1))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_noise_is_a_corrupt_letter(noise: bytes, looks_right: bool) -> None:
    with pytest.raises(CorruptLetter):
        opened(b"COTLET1\n" + noise if looks_right else noise)


@pytest.mark.parametrize(
    "change", [{"task": "faces"}, {"round": 2}, {"round": 4}, {"plan_version": 6}, {"kind": "parameters"}]
)
def test_a_letter_about_something_else_is_for_the_wrong_round(change: dict[str, object]) -> None:
    other = dataclasses.replace(SUBJECT, **change)  # type: ignore[arg-type]  # fields by name
    with pytest.raises(WrongRound, match="expected a letter about"):
        opened(sealed(dataclasses.replace(HEADER, subject=other)))


def test_a_letter_for_somebody_else_is_not_opened() -> None:
    with pytest.raises(WrongRecipient, match="for carl, not for bert"):
        opened(sealed(dataclasses.replace(HEADER, recipient="carl")))


def test_a_letter_from_a_stranger_is_not_opened() -> None:
    with pytest.raises(Stranger, match="anna is not a peer"):
        opened(sealed(), peers={"dora": ANNA.public().sealing})


def test_a_stranger_cannot_pass_for_a_peer() -> None:
    forged = seal(HEADER, TENSORS, DeviceKeys.generate(), BERT.public().sealing)
    with pytest.raises(CorruptLetter, match="forged"):
        opened(forged)


def test_a_header_swapped_on_the_way_is_noticed() -> None:
    """The platform relabels an old letter as one of this round: the box still says the old round."""
    old = sealed(dataclasses.replace(HEADER, subject=dataclasses.replace(SUBJECT, round=2)))
    relabelled = old.replace(b'"round":2', b'"round":3', 1)
    assert read_header(relabelled) == HEADER
    with pytest.raises(CorruptLetter, match="differs from the one outside"):
        opened(relabelled)


def test_a_letter_reflected_to_its_sender_is_noticed() -> None:
    """Both directions of a box share one key, so Anna can decrypt her own letter; the names inside give it away."""
    letter = sealed()
    reflected = letter.replace(b'"recipient":"bert","sender":"anna"', b'"recipient":"anna","sender":"bert"', 1)
    with pytest.raises(CorruptLetter, match="differs"):
        opened(reflected, keys=ANNA, recipient="anna", peers={"bert": BERT.public().sealing})


def test_a_letter_is_accepted_once() -> None:
    seen, letter = SeenLetters(), sealed()
    opened(letter, seen=seen)
    for again in (letter, sealed()):
        with pytest.raises(ReplayedLetter, match="the first letter counts"):
            opened(again, seen=seen)


def test_a_refused_letter_does_not_use_up_the_senders_turn() -> None:
    seen, letter = SeenLetters(), bytearray(sealed())
    letter[-1] ^= 1
    with pytest.raises(CorruptLetter):
        opened(bytes(letter), seen=seen)
    assert opened(sealed(), seen=seen).header == HEADER


def test_old_rounds_can_be_forgotten() -> None:
    seen = SeenLetters()
    seen.accept(HEADER)
    seen.forget_before("digits", 3)
    with pytest.raises(ReplayedLetter):
        seen.accept(HEADER)
    seen.forget_before("digits", 4)
    seen.accept(HEADER)


def test_a_letter_sealed_before_the_last_rotation_still_opens() -> None:
    letter, once = sealed(), BERT.rotated()
    assert opened(letter, keys=once).header == HEADER
    with pytest.raises(CorruptLetter, match="long replaced"):
        opened(letter, keys=once.rotated())


def test_letters_beyond_the_size_limit_are_neither_written_nor_opened() -> None:
    with pytest.raises(ValueError, match="may have 100 bytes"):
        sealed(maximum_bytes=100)
    with pytest.raises(CorruptLetter, match="may have 100 bytes"):
        opened(sealed(), maximum_bytes=100)
    with pytest.raises(ValueError, match="use shorter ids"):
        sealed(dataclasses.replace(HEADER, recipient="b" * 5000))
    with pytest.raises(ValueError, match="at least 1 byte"):
        sealed(padding_bytes=0)


@pytest.mark.parametrize("payload", [b"", b"\x80\x04N.", b'\x02\x00\x00\x00\x00\x00\x00\x00{"'])
def test_a_peer_that_seals_something_else_than_tensors_is_corrupt(payload: bytes) -> None:
    line = letters._prefixed(letters._encode(HEADER))
    for length in (len(payload), len(payload) + 1):
        content = line + length.to_bytes(8, "big") + payload
        box = Box(PrivateKey(ANNA.sealing), PublicKey(BERT.public().sealing))
        with pytest.raises(CorruptLetter, match="letter from anna"):
            opened(b"COTLET1\n" + line + box.encrypt(content))
