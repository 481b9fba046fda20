"""Block allocation: most devices, then least delay, against enumeration."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.topology.domain.blocks import UNSERVED, InvalidBlocks, allocate_blocks


def best_by_enumeration(delay: np.ndarray, limit: float) -> tuple[int, float]:
    """Every injective partial map of devices to blocks, the most served first, then the least total delay."""
    users, blocks = delay.shape
    best = (0, 0.0)
    for choice in itertools.product([None, *range(blocks)], repeat=users):
        used = [b for b in choice if b is not None]
        if len(set(used)) < len(used):
            continue
        times = [delay[u, b] for u, b in enumerate(choice) if b is not None]
        if any(t > limit or math.isinf(t) for t in times):
            continue
        if (len(times), -sum(times)) > (best[0], -best[1] if times else -math.inf):
            best = (len(times), float(sum(times)))
    return best


@given(
    st.integers(1, 4).flatmap(
        lambda blocks: st.lists(
            st.lists(
                st.one_of(st.floats(0.0, 1.0), st.just(math.inf), st.floats(0.0, 1e-9)),
                min_size=blocks,
                max_size=blocks,
            ),
            min_size=1,
            max_size=4,
        )
    ),
    st.floats(0.0, 1.2),
)
def test_allocation_is_optimal_by_enumeration(delay: list[list[float]], limit: float) -> None:
    """Spec 3.5: allocation optimal by enumeration (k, R <= 4)."""
    table = np.array(delay)
    answer = allocate_blocks(table, limit)
    served, total = best_by_enumeration(table, limit)
    assert answer.served == served
    assert answer.total_delay == pytest.approx(total, rel=1e-9, abs=1e-15)
    taken = answer.block[answer.block != UNSERVED]
    assert len(set(taken.tolist())) == taken.size == served
    assert all(table[u, b] <= limit for u, b in enumerate(answer.block) if b != UNSERVED)


def test_serving_one_more_outweighs_any_delay() -> None:
    # Device 0 alone would be quickest on block 0 (.1 s), but then device 1 has no admissible block.
    answer = allocate_blocks([[0.1, 0.4], [0.3, 9.0]], 0.4)
    assert answer.block.tolist() == [1, 0]
    assert answer.total_delay == pytest.approx(0.7)


def test_a_delay_equal_to_the_limit_is_admissible() -> None:
    assert allocate_blocks([[0.4]], 0.4).served == 1


def test_tiny_delays_keep_their_order() -> None:
    """An absolute BIG of 1 + … would drown differences of 1e-18 s."""
    assert allocate_blocks([[2e-18, 1e-18], [1e-18, 2e-18]], 1.0).block.tolist() == [1, 0]


@pytest.mark.parametrize("delay", [[], [[], []], [[9.0, 9.0]], [[math.inf]]])
def test_without_devices_blocks_or_feasible_pairs_no_device_is_served(delay: list[list[float]]) -> None:
    answer = allocate_blocks(delay, 0.4)
    assert answer.served == 0
    assert answer.total_delay == 0.0
    assert answer.block.tolist() == [UNSERVED] * len(delay)


def test_an_infinite_limit_admits_every_finite_delay() -> None:
    assert allocate_blocks([[5.0, math.inf], [math.inf, math.inf]], math.inf).block.tolist() == [0, UNSERVED]


@pytest.mark.parametrize(
    ("delay", "limit", "says"),
    [
        ([[math.nan]], 1.0, "NaN"),
        ([[-1.0]], 1.0, "negative"),
        ([[1.0]], -1.0, "limit"),
        ([[1.0]], math.nan, "limit"),
        ([1.0, 2.0], 1.0, "table"),
    ],
)
def test_nonsense_tables_are_refused(delay: list[list[float]], limit: float, says: str) -> None:
    with pytest.raises(InvalidBlocks, match=says):
        allocate_blocks(delay, limit)
