"""Masks cancel exactly, for every committee, every set of survivors and every clerk that may be lost."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.secure_sums import chacha, masks
from tests.attacks.sum_fixture import SumFixture, chosen_digest, clear_sum, names, open_sum, survivors_of

COMMITTEES = [(3, 2), (4, 2), (5, 3), (7, 3)]
ALL = [(m, t) for m in range(2, 8) for t in range(2, m + 1)]


@pytest.mark.parametrize(("clerks", "threshold"), ALL)
def test_any_t_clerks_hold_every_share_and_any_fewer_miss_one(clerks: int, threshold: int) -> None:
    every = set(range(len(masks.withheld_sets(clerks, threshold))))
    held = [set(masks.held_shares(clerks, threshold, at)) for at in range(clerks)]
    for group in combinations(held, threshold):
        assert set().union(*group) == every
    for group in combinations(held, threshold - 1):
        assert set().union(*group) < every


@pytest.mark.parametrize(("clerks", "threshold"), ALL)
def test_two_agreeing_groups_share_an_honest_clerk(clerks: int, threshold: int) -> None:
    """Any two groups of q share at least t clerks; with q − 1 some two do not."""
    q = masks.commit_quorum(clerks, threshold)
    assert q <= clerks
    shared = [len(set(a) & set(b)) for a in combinations(range(clerks), q) for b in combinations(range(clerks), q)]
    assert min(shared) >= threshold
    fewer = [set(a) & set(b) for a in combinations(range(clerks), q - 1) for b in combinations(range(clerks), q - 1)]
    assert min(map(len, fewer)) < threshold


@pytest.mark.parametrize(("clerks", "threshold"), [(8, 2), (2, 1), (1, 1), (3, 4), (0, 0)])
def test_other_committees_are_refused(clerks: int, threshold: int) -> None:
    with pytest.raises(ValueError, match="not supported"):
        masks.withheld_sets(clerks, threshold)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(("clerks", "threshold"), COMMITTEES)
def test_opened_sum_is_clear_sum_for_every_set_and_every_lost_clerk(
    clerks: int, threshold: int, bits: int, tmp_path: Path
) -> None:
    """X = Σ values for every S of at least `least`, with any m − q clerks silent."""
    q = masks.commit_quorum(clerks, threshold)
    sets = [chosen for size in (4, 5) for chosen in combinations(names(5), size)]
    for number, chosen in enumerate(sets if clerks < 5 else sets[-2:]):
        sum_fixture = SumFixture(
            tmp_path / str(number), names(max(5, clerks)), clerks, threshold, bits=bits, elements=3, least=4
        )
        terms = sum_fixture.terms()
        small = np.random.default_rng(bits).integers(-(2**25), 2**25, (5, 3))
        deliveries = {
            device: sum_fixture.deliver(terms, device, row) for device, row in zip(names(5), small, strict=True)
        }
        sum_fixture.ready_check_all(terms, deliveries)
        survivors = survivors_of(deliveries, chosen)
        agreements = sum_fixture.commit_all(terms, survivors)
        answers = sum_fixture.answer_all(terms, chosen_digest(terms, survivors), agreements)
        alive = [deliveries[device] for device in chosen]
        for there in combinations(answers.values(), q):
            assert open_sum(terms, alive, there).tolist() == clear_sum(alive).tolist()


@settings(max_examples=30, deadline=None)
@given(st.data(), st.sampled_from([32, 64]), st.integers(1, 6), st.integers(1, 20))
def test_masked_words_fold_in_any_order_and_any_split(
    data: st.DataObject, bits: int, devices: int, elements: int
) -> None:
    """Replicas add what reaches them modulo 2^b and merge; removal is subtraction."""
    terms, most = bytes(32), 2 ** (bits - 1) // (devices + 1) - 1
    values = [
        data.draw(st.lists(st.integers(-most, most), min_size=elements, max_size=elements)) for _ in range(devices)
    ]
    seeds = [[bytes([device, share]) * 16 for share in range(4)] for device in range(devices)]
    words = [
        masks.masked(np.array(value, dtype=np.int64), terms, f"dev_{at}", seeds[at], bits)
        for at, value in enumerate(values)
    ]
    order = data.draw(st.permutations(range(devices)))
    cut = data.draw(st.integers(0, devices))
    replicas = [np.zeros(elements, masks.word_type(bits)) for _ in range(2)]
    for position, at in enumerate(order):
        replicas[position < cut] += words[at]
    replicas[0] += words[0]
    replicas[0] -= words[0]
    sums = [
        masks.share_sum(terms, share, [(f"dev_{at}", seeds[at][share]) for at in order], elements, bits)
        for share in range(4)
    ]
    assert masks.opened(replicas[0] + replicas[1], sums).tolist() == np.sum(values, axis=0).tolist()


@pytest.mark.parametrize("bits", [32, 64])
def test_both_libraries_give_the_same_masks(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    words = []
    for openssl in (True, False):
        monkeypatch.setattr(chacha, "HAS_OPENSSL", openssl)
        words.append(masks.mask_stream(bytes(32), "dev_a", 3, bytes(range(32)), 1_001, bits))
    np.testing.assert_array_equal(words[0], words[1])


def test_a_mask_depends_on_terms_device_share_and_seed() -> None:
    seed = bytes(range(32))
    keys = {
        masks.mask_key(bytes(32), "dev_a", 0, seed),
        masks.mask_key(b"\1" * 32, "dev_a", 0, seed),
        masks.mask_key(bytes(32), "dev_b", 0, seed),
        masks.mask_key(bytes(32), "dev_a", 1, seed),
        masks.mask_key(bytes(32), "dev_a", 0, bytes(32)),
        masks.commitment(bytes(32), "dev_a", 0, seed),
    }
    assert len(keys) == 6


def test_words_of_other_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="32 or 64"):
        masks.word_type(16)
