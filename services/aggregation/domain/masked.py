"""Masked updates as the platform sees them: words to add up modulo 2^b, and what the device signed beside them.

The platform adds words it cannot read. Sums are kept in 64 bits whatever the width of a word, since 2^b divides 2^64:
they are cut to b bits when the sum is opened, so that order, grouping, replicas and removals leave no trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.secure_sums import masks
from coterie.secure_sums.letters import MAXIMUM_BYTES
from coterie.secure_sums.masks import Words
from coterie.secure_sums.terms import DIGEST_BYTES, KEY_BYTES, Terms, signed_by, upload_message
from coterie.secure_sums.uploads import most_bytes
from services.aggregation.domain.accumulator import WINDOW, Accumulator, Read, units
from services.aggregation.domain.layout import PREFIX_BYTES, Layout, Tensor, header_length, parse
from services.aggregation.errors import BadMaskedUpdate
from services.kit.errors import InvalidInput

DTYPES: dict[str, np.dtype[Any]] = {"U8": np.dtype("u1"), "U32": np.dtype("<u4"), "U64": np.dtype("<u8")}


@dataclass(frozen=True, slots=True)
class MaskedFile:
    """Where the parts of a masked update lie, and those that are small."""

    words: Tensor
    commitments: tuple[bytes, ...]
    letter_key: bytes
    letters: tuple[tuple[int, int], ...]

    @property
    def root(self) -> bytes:
        return masks.root(self.commitments)


def read_file(read: Read, size: int, terms: Terms) -> MaskedFile:
    """The parts of a stored masked update; `BadMaskedUpdate` unless it has exactly those the terms ask for."""
    if size > most_bytes(terms):
        raise BadMaskedUpdate(f"a masked update of these terms has at most {most_bytes(terms)} bytes, this one {size}")
    layout = _layout(read, size)
    tensors = {tensor.name: tensor for tensor in layout.tensors}
    letters = [f"letter.{at}" for at in range(len(terms.clerks))]
    if tensors.keys() != {"masked", "commitments", "letter_key", *letters}:
        raise BadMaskedUpdate(f"a masked update holds masked, commitments, letter_key and {len(letters)} letters")
    _check(tensors["masked"], f"U{terms.bits}", (terms.elements,))
    _check(tensors["commitments"], "U8", (terms.shares, DIGEST_BYTES))
    _check(tensors["letter_key"], "U8", (KEY_BYTES,))
    for name in letters:
        _check(tensors[name], "U8", (min(tensors[name].elements, MAXIMUM_BYTES),))
    rows = bytes(_bytes(read, tensors["commitments"]))
    return MaskedFile(
        tensors["masked"],
        tuple(rows[start : start + DIGEST_BYTES] for start in range(0, len(rows), DIGEST_BYTES)),
        bytes(_bytes(read, tensors["letter_key"])),
        tuple((tensors[name].start, tensors[name].elements) for name in letters),
    )


def check_signed(
    file: MaskedFile, read: Read, terms: Terms, *, device: str, signing_key: bytes, signature: bytes
) -> str:
    """Return the digest of the masked words if the device signed them, its seeds and its letter key."""
    hasher = hashlib.sha256()
    for start in range(file.words.start, file.words.stop, WINDOW):
        hasher.update(read(start, min(WINDOW, file.words.stop - start)))
    message = upload_message(terms.digest, device, hasher.digest(), file.root, file.letter_key)
    if not signed_by(signing_key, message, signature):
        raise BadMaskedUpdate("the masked update is not signed by this device under these terms")
    return hasher.hexdigest()


class MaskedSum(Accumulator):
    """Σ masked words of one cohort, modulo 2^64, and the weight of those in it."""

    def __init__(self, layout: Layout, terms: Terms) -> None:
        super().__init__(layout, scale=0, updates=1, more=terms.elements - layout.elements)
        self._kind = masks.word_type(terms.bits)

    def add(self, read: Read, words: Tensor, weight: float, *, sign: int = 1) -> None:
        """Adds masked words, or with sign −1 takes them out again."""
        size = self._kind.itemsize
        for start in range(0, words.elements, WINDOW):
            count = min(WINDOW, words.elements - start)
            piece = np.frombuffer(read(words.start + start * size, count * size), self._kind).astype(np.int64)
            with self._cells.window(start, start + count) as cells:
                if sign > 0:
                    cells += piece
                else:
                    cells -= piece
        self.weight_units += sign * units(weight)

    def words(self) -> Iterator[Words]:
        """The sum in words of b bits, a window at a time."""
        for piece in self.pieces():
            yield piece.astype(self._kind)


def _layout(read: Read, size: int) -> Layout:
    try:
        length = header_length(bytes(read(0, min(PREFIX_BYTES, size))), size)
        return parse(bytes(read(PREFIX_BYTES, length)), size, DTYPES)
    except InvalidInput as error:
        raise BadMaskedUpdate(f"the masked update is not a sound safetensors file: {error.message}") from error


def _bytes(read: Read, tensor: Tensor) -> bytes | memoryview:
    return read(tensor.start, tensor.stop - tensor.start)


def _check(tensor: Tensor, dtype: str, shape: tuple[int, ...]) -> None:
    if (tensor.dtype, tensor.shape) != (dtype, shape):
        raise BadMaskedUpdate(f"tensor {tensor.name!r} must be {dtype} of shape {list(shape)}")
