"""What a secure sum costs each party: processor milliseconds and bytes, and the sum is checked to the bit.

    OMP_NUM_THREADS=1 python bench/secure_sums.py [--full]

The pure parts in one process, without network or database: 4 clerks of whom any 2 open a sum, 30 % of the devices and
one clerk lost, noise multiplier 1. Milliseconds are processor time, so other work on the machine does not count.
`--full` adds 1,000 devices with 100,000 elements and 12 devices with a million.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from coterie.privacy.simulation import SeededStream
from coterie.protocol.keys import DeviceKeys
from coterie.secure_sums import masks
from coterie.secure_sums.clerk import Answer, Clerk
from coterie.secure_sums.committee_store import CommitteeStore
from coterie.secure_sums.contribution import contribution
from coterie.secure_sums.grid import Extent
from coterie.secure_sums.protocol_lists import Candidate, candidates_text
from coterie.secure_sums.terms import NamedClerk, Participants, Place, Terms, survivors_digest
from coterie.secure_sums.uploads import make_upload
from services.aggregation.domain.secure_terms import Model, SumRules, make_terms
from services.aggregation.domain.sum_decisions import Settled, count_votes, fault_of_sum, judge_ready_checks

P = ParamSpec("P")
Result = TypeVar("Result")
SIZES = [(12, 650), (50, 7_850), (250, 100_000), (1_000, 7_850)]
LARGE = [(1_000, 100_000), (12, 1_000_000)]
LOST = 0.3
CLERKS = 4


@dataclass
class Costs:
    """Milliseconds of one device and of one clerk, and of the server; bytes of all."""

    noise: float
    seal: float
    letters: float
    sum: float
    server: float
    upload_bytes: int
    round_bytes: int


def timed(work: Callable[P, Result], *args: P.args, **named: P.kwargs) -> tuple[Result, float]:
    start = time.process_time()
    result = work(*args, **named)
    return result, 1_000 * (time.process_time() - start)


def keys_of(name: str) -> DeviceKeys:
    return DeviceKeys(hashlib.sha256(name.encode()).digest(), bytes(range(32)))


def open_terms(folder: Path, names: list[str], elements: int) -> tuple[Terms, Participants, list[Clerk]]:
    """Offers of the first four devices, and terms made of them."""
    place = Place("tsk_bench", 0, 1, 1)
    desks = [Clerk(name, keys_of(name), CommitteeStore(folder / f"{name}.db")) for name in names[:CLERKS]]
    named = [
        NamedClerk(name, f"own_{name}", keys_of(name).public().signing, offer.session_key, offer.signature)
        for name, offer in (
            (name, desk.offer_key(place, time.time() + 600)) for name, desk in zip(names, desks, strict=False)
        )
    ]
    people = Participants.of({name: keys_of(name).public().signing for name in names})
    model = Model(hashlib.sha256(b"model").hexdigest(), elements)
    terms = make_terms(
        place, 1, model, people, named, SumRules(), quorum=0.65, clip_norm=1.0, noise_multiplier=1.0, heaviest=1.0
    )
    return terms, people, desks


def play(folder: Path, devices: int, elements: int) -> tuple[Terms, Costs]:
    """One round; the first devices add noise from the sampler and are measured, the others small numbers."""
    names = [f"dev_{number:04}" for number in range(devices)]
    terms, people, desks = open_terms(folder, names, elements)
    there = names[: math.ceil((1 - LOST) * devices)]
    change = np.random.default_rng(1).normal(0, 1, elements)
    clear, masked_sum = np.zeros(elements, np.int64), np.zeros(elements, masks.word_type(terms.bits))
    candidates: list[Candidate] = []
    letters: list[tuple[bytes, ...]] = []
    noise: list[float] = []
    seal: list[float] = []
    body_bytes = fold = 0.0
    contribution(change, terms, 1.0, SeededStream(0))  # the noise's table is made once in a device's life
    for number, name in enumerate(there):
        values: NDArray[np.int64] = np.full(elements, number)
        if number < 4:
            values, spent = timed(contribution, change, terms, 1.0, SeededStream(number))
            noise.append(spent)
        (upload, signature), spent = timed(make_upload, values, terms, name, keys_of(name), [], 0)
        seal.append(spent)
        clear += values
        _, spent = timed(np.add, masked_sum, upload.masked, out=masked_sum)
        fold += spent
        body_bytes = body_bytes or len(upload.body())
        letters.append(upload.letters)
        candidates.append(Candidate(name, upload.masked_digest, upload.root, upload.letter_key, signature))
    answers, letter_ms, sum_ms = count(terms, people, desks[: CLERKS - 1], candidates, letters)
    opened, server_ms = timed(close, terms, masked_sum, answers, len(there))
    assert np.array_equal(opened, clear), "the opened sum is not the clear sum"
    vector_bytes = elements * terms.bits // 8
    lists = len(candidates_text(candidates)) + sum(len(letter[0]) for letter in letters)
    round_bytes = len(there) * int(body_bytes) + (CLERKS - 1) * lists + terms.shares * vector_bytes
    return terms, Costs(min(noise), min(seal), letter_ms, sum_ms, fold + server_ms, int(body_bytes), round_bytes)


def count(
    terms: Terms,
    people: Participants,
    desks: list[Clerk],
    candidates: list[Candidate],
    letters: list[tuple[bytes, ...]],
) -> tuple[dict[int, Answer], float, float]:
    """ReadyCheck, agree and answer with the clerks that are there; milliseconds of one clerk."""
    ready, letter_ms, sum_ms = {}, 0.0, 0.0
    for at, desk in enumerate(desks):
        own = {item.device: sealed[at] for item, sealed in zip(candidates, letters, strict=True)}
        ready_check, letter_ms = timed(desk.ready_check, terms, people, candidates, own)
        ready[at] = ready_check.ready
    names = [candidate.device for candidate in candidates]
    step = judge_ready_checks(ready, range(CLERKS), names, least=terms.least, quorum=terms.quorum, patience_over=True)
    assert isinstance(step, Settled)
    survivors = [(candidate.device, candidate.root) for candidate in candidates if candidate.device in step.survivors]
    chosen = survivors_digest(terms.digest, survivors)
    commits = {terms.clerks[at].device: desk.commit(terms, people, survivors) for at, desk in enumerate(desks)}
    answers = {}
    for at, desk in enumerate(desks):
        answers[at], sum_ms = timed(desk.answer, terms, chosen, commits)
    return answers, letter_ms, sum_ms


def close(terms: Terms, masked_sum: masks.Words, answers: dict[int, Answer], survivors: int) -> NDArray[np.int64]:
    """The server's part after the last answer: votes, opening, range and norm."""
    believed = count_votes({at: answer.digests for at, answer in answers.items()}, CLERKS, 2).believed(unchecked=True)
    assert believed is not None
    sums = [
        next(answer.sums[share] for answer in answers.values() if answer.digests.get(share) == value)
        for share, value in believed.items()
    ]
    opened = masks.opened(masked_sum, sums)
    assert fault_of_sum(Extent.of(opened), survivors, terms) is None
    return opened


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true")
    sizes = SIZES + (LARGE if parser.parse_args().full else [])
    print(
        "      n          d   b   device: noise   mask+seal   clerk: letters       sum   server   upload   whole round"
    )
    for devices, elements in sizes:
        with tempfile.TemporaryDirectory() as folder:
            terms, costs = play(Path(folder), devices, elements)
        there = math.ceil((1 - LOST) * devices)
        print(
            f"{devices:7,d} {elements:10,d}  {terms.bits:2d}   {costs.noise:10.1f} ms {costs.seal:8.1f} ms "
            f"{costs.letters:13.0f} ms {costs.sum:6.0f} ms {costs.server:5.0f} ms "
            f"{costs.upload_bytes / (4 * elements):7.2f} × {costs.round_bytes / (4 * elements * there):11.2f} ×",
            flush=True,
        )


if __name__ == "__main__":
    main()
