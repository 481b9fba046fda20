"""Buffered steps: staleness weighs, limits hold, and a log replays to the same steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from services.aggregation.domain.accumulator import Accumulator, choose_scale
from services.aggregation.domain.buffering import Accepted, Arrival, Buffer, Buffering, Refused, Step, replay
from services.aggregation.domain.layout import PREFIX_BYTES, header_length, parse


def arrival(device: str, version: int, weight: float = 1.0) -> Arrival:
    return Arrival(device, version, f"{device}@{version}", weight)


def test_a_worked_buffer() -> None:
    """K = 2, a = 1: b's update, one version behind when it counts, weighs half."""
    buffer = Buffer(Buffering(2, exponent=1.0, limit=1))
    assert isinstance(buffer.offer(arrival("a", 0)), Accepted)
    assert buffer.step() is None
    buffer.offer(arrival("c", 0, weight=3.0))
    first = buffer.step()
    assert first is not None
    assert [(u.arrival.device_id, u.staleness, u.share) for u in first.updates] == [("a", 0, 1.0), ("c", 0, 3.0)]
    assert (first.version, first.weight) == (1, 4.0)
    late = buffer.offer(arrival("b", 0, weight=2.0))
    assert isinstance(late, Accepted)
    assert (late.staleness, late.share) == (1, 1.0)
    again = buffer.offer(arrival("b", 1))
    assert isinstance(again, Refused)
    assert "has an update in the buffer already" in again.why
    buffer.offer(arrival("a", 1))
    second = buffer.step()
    assert second is not None
    assert second.weight == 3.0
    stale = buffer.offer(arrival("d", 0))
    assert isinstance(stale, Refused)
    assert "2 behind the model; at most 1 are taken: fetch the newest version" in stale.why
    early = buffer.offer(arrival("d", 9))
    assert isinstance(early, Refused)
    assert "does not exist yet" in early.why


logs = st.lists(
    st.builds(arrival, st.sampled_from("abcdefgh"), st.integers(0, 6), st.sampled_from([0.5, 1.0, 2.0, 7.0])),
    max_size=60,
)
rules = st.builds(Buffering, st.integers(1, 5), st.floats(0, 3), st.integers(0, 5))


@given(rules, logs)
def test_every_arrival_is_in_one_step_or_refused_or_waits(rule: Buffering, log: list[Arrival]) -> None:
    """Work is never lost in silence, and a step holds exactly K updates of K devices."""
    steps, refused, buffer = replay(rule, log)
    counted = sum(len(step.updates) for step in steps)
    assert counted + len(refused) + len(buffer.waiting) == len(log)
    assert all(item.why for item in refused)
    assert [step.version for step in steps] == list(range(1, len(steps) + 1))
    for step in steps:
        assert len({update.arrival.device_id for update in step.updates}) == len(step.updates) == rule.size
        for update in step.updates:
            assert update.staleness == step.version - 1 - update.arrival.version <= rule.limit
            assert 0 < update.share <= update.arrival.weight


@given(rules, logs, st.integers(0, 60))
def test_a_log_cut_anywhere_goes_on_to_the_same_steps(rule: Buffering, log: list[Arrival], cut: int) -> None:
    whole, _, _ = replay(rule, log)
    first, _, buffer = replay(rule, log[:cut])
    rest: list[Step] = []
    for item in log[cut:]:
        buffer.offer(item)
        made = buffer.step()
        rest += [made] if made else []
    assert first + rest == whole


@given(st.permutations(range(4)), st.integers(0, 2**32))
def test_a_step_has_the_same_bits_whatever_the_order_of_its_arrivals(order: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    files = {f"d{i}": save({"w": rng.normal(size=5).astype(np.float32)}) for i in range(4)}

    def change(log: list[Arrival]) -> bytes:
        ((step,), _, _) = replay(Buffering(4, exponent=0.7), log)
        one = next(iter(files.values()))
        layout = parse(one[PREFIX_BYTES : PREFIX_BYTES + header_length(one[:PREFIX_BYTES], len(one))], len(one))
        total = Accumulator(layout, choose_scale(4, 8.0), 4)
        for update in step.updates:
            file = files[update.arrival.device_id]
            total.fold(layout, lambda start, length, file=file: file[start : start + length], update.share)  # type: ignore[misc]
        return (total.total() / step.weight).tobytes()

    log = [Arrival(f"d{i}", 0, "", float(i + 1)) for i in range(4)]
    assert change(log) == change([log[i] for i in order])


@pytest.mark.parametrize(
    ("values", "words"),
    [((0,), "buffer: must be at least 1"), ((1, -1.0), "staleness_exponent"), ((1, 0.5, -1), "staleness_limit")],
)
def test_senseless_numbers_are_refused(values: tuple[float, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Buffering(*values)  # type: ignore[arg-type]


@given(st.floats(0, 3), st.integers(0, 100))
def test_staler_updates_never_weigh_more(exponent: float, staleness: int) -> None:
    rule = Buffering(1, exponent, 200)
    assert rule.discount(0) == 1.0
    assert 0 < rule.discount(staleness + 1) <= rule.discount(staleness)
