"""The exact samplers against the exact laws, and the streams they draw from."""

import ast
import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2

from coterie.privacy import discrete
from coterie.privacy.discrete import discrete_gaussian, discrete_laplace, gaussian_table, keep_tables, plan_noise
from coterie.privacy.simulation import SeededStream
from coterie.privacy.stream import FreshStream
from coterie.secure_sums import chacha

Floats = NDArray[np.float64]
VECTORS = json.loads((Path(__file__).parents[3] / "golden/sums/secure-sums-vectors.json").read_text())
DRAWS = 200_000


def no_further_word() -> int:
    raise AssertionError("these words need no further one")


# --- the specification's vectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS["noise_plans"], ids=lambda v: str(v["sigma"]))
def test_the_plan_of_every_vector(vector: dict[str, Any]) -> None:
    plan = plan_noise(vector["sigma"])
    assert (plan.base, plan.radix, plan.digits) == (vector["base"], vector["radix"], vector["digits"])


@pytest.mark.parametrize("vector", VECTORS["noise_tables"], ids=lambda v: str(v["base"]))
def test_the_cuts_of_every_vector(vector: dict[str, Any]) -> None:
    table = gaussian_table(Decimal(vector["base"]) ** 2)
    assert table.lowest == vector["lowest"]
    for value, cut in vector["cuts"].items():
        assert f"{table.cuts[int(value) - table.lowest]:032x}" == cut


@pytest.mark.parametrize("vector", VECTORS["noise_digits"], ids=lambda v: str(v["base"]))
def test_the_digits_of_every_vector(vector: dict[str, Any]) -> None:
    words = np.array([int(word, 16) for word in vector["words"]], dtype=np.uint64)
    digits = gaussian_table(Decimal(vector["base"]) ** 2).look_up(words, no_further_word)
    assert digits.tolist() == vector["digits"]


# --- tables -----------------------------------------------------------------------------------------------------------


def test_a_table_is_the_law_to_128_bits() -> None:
    """Every cut against 90-digit exponentials taken one by one, without the recurrence."""
    mpmath = pytest.importorskip("mpmath")
    variance = Decimal("317.25")
    table = gaussian_table(variance)
    with mpmath.workdps(90):
        weights = {v: mpmath.exp(-(mpmath.mpf(v) ** 2) / (2 * mpmath.mpf("317.25"))) for v in range(-400, 401)}
        total, running = mpmath.fsum(weights.values()), mpmath.mpf(0)
        for v in range(-400, 401):
            running += weights[v]
            if 0 <= v - table.lowest < len(table.cuts):
                assert table.cuts[v - table.lowest] == int(mpmath.floor(2**128 * running / total)), v


def test_a_draw_is_the_number_of_cuts_at_most_the_128_bits() -> None:
    """Words on a cut, one beside it, at both ends, and at random, against plain integers."""
    table = gaussian_table(Decimal(400))
    random = np.random.default_rng(5)
    highs = [cut >> 64 for cut in table.cuts[::7]]
    words = [0, 1, 2**64 - 1, *highs, *(h - 1 for h in highs if h), *random.integers(0, 2**64, 500, dtype=np.uint64)]
    for low in (0, 1 << 63, 2**64 - 1, *(cut & (2**64 - 1) for cut in table.cuts[::31])):
        further = lambda low=low: low  # noqa: E731
        drawn = table.look_up(np.array(words, dtype=np.uint64), further)
        expected = [table.lowest + sum(cut <= (int(word) << 64 | low) for cut in table.cuts) for word in words]
        assert drawn.tolist() == expected


@pytest.mark.parametrize("sigma", [520.0, 600.0, 5_000.0])
def test_digits_put_together_have_the_law_of_the_whole(sigma: float) -> None:
    """Brute force: the law of Y_0 + a·Y_1 by convolution, relative to N_Z(0, σ²), to the last digits of a double."""
    plan = plan_noise(sigma)
    assert plan.digits == 2
    reach = math.ceil(8 * plan.base)
    digit = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * plan.base**2))
    digit /= digit.sum()
    for x in (0, 1, 7, round(sigma / 2), round(sigma), round(2 * sigma)):
        upper = np.arange(-reach, reach + 1)
        lower = x - plan.radix * upper
        inside = np.abs(lower) <= reach
        mass = float(digit[upper[inside] + reach] @ digit[lower[inside] + reach])
        law = math.exp(-(x**2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))
        assert mass == pytest.approx(law, rel=1e-11)


@settings(max_examples=60, deadline=None)
@given(st.floats(4.0, 40.0).map(lambda bits: 2.0**bits))
def test_every_plan_keeps_the_deviation_and_the_conditions(sigma: float) -> None:
    """σ0² ≥ (100/2π²)(1 + a²) with the largest such a; σ0 ≤ 512; one digit fewer would not do."""
    plan = plan_noise(sigma)
    squares = sum(plan.radix ** (2 * j) for j in range(plan.digits))
    assert float(plan.variance) * squares == pytest.approx(sigma**2, rel=1e-14)
    assert plan.base <= discrete.MOST_BASE
    if plan.digits > 1:
        larger = plan.radix + 1
        assert plan.base**2 >= 100 / (2 * math.pi**2) * (1 + plan.radix**2) * (1 - 1e-12)
        assert sigma**2 / sum(larger ** (2 * j) for j in range(plan.digits)) < 100 / (2 * math.pi**2) * (1 + larger**2)


@pytest.mark.parametrize("sigma", [15.9, 2.0**40 * 1.01, math.nan, math.inf, -16.0])
def test_deviations_without_a_sampler_are_refused(sigma: float) -> None:
    with pytest.raises(ValueError, match="from 16 to 2"):
        discrete_gaussian(1, sigma, SeededStream(1))


# --- laws -------------------------------------------------------------------------------------------------------------


def assert_follows(drawn: NDArray[np.int64], law: Callable[[NDArray[np.int64]], Floats], reach: int) -> None:
    """χ² over some 150 bins of about equal chance."""
    values = np.arange(-reach, reach + 1)
    mass = law(values)
    mass /= mass.sum()
    bins = np.minimum((np.cumsum(mass) * 150).astype(int), 149)
    expected = np.bincount(bins, mass) * len(drawn)
    observed = np.bincount(bins[np.clip(drawn + reach, 0, 2 * reach)], minlength=len(expected))
    used = expected > 0
    statistic = float(np.sum((observed[used] - expected[used]) ** 2 / expected[used]))
    assert chi2.sf(statistic, int(used.sum()) - 1) > 1e-4


@pytest.mark.parametrize("sigma", [16.0, 40.0, 700.0, 5_000.0])
def test_gaussian_draws_follow_the_law(sigma: float) -> None:
    drawn = discrete_gaussian(DRAWS, sigma, SeededStream("gaussian", round(sigma)))
    assert_follows(drawn, lambda v: np.exp(-(v**2) / (2 * sigma**2)), math.ceil(8 * sigma))
    # The last bits too: a wrong radix would show as a comb.
    parity = int(np.count_nonzero(drawn & 1))
    assert abs(parity - DRAWS / 2) < 5 * math.sqrt(DRAWS) / 2


@pytest.mark.parametrize("sigma", [16.0, 700.0, 25_364_766.4, 2.0**40])
def test_gaussian_variance_is_within_five_standard_errors(sigma: float) -> None:
    drawn = discrete_gaussian(DRAWS, sigma, SeededStream("variance", repr(sigma))).astype(float)
    assert abs(drawn.mean()) < 5 * sigma / math.sqrt(DRAWS)
    assert abs(drawn.var() / sigma**2 - 1) < 5 * math.sqrt(2 / DRAWS)


@pytest.mark.parametrize("scale", [0.05, 0.7, 12.0, 900.0, 40_000.0])
def test_laplace_draws_follow_the_law(scale: float) -> None:
    drawn = discrete_laplace(DRAWS, scale, SeededStream("laplace", repr(scale)))
    assert_follows(drawn, lambda v: np.exp(-np.abs(v) / scale), math.ceil(40 * scale))


@pytest.mark.parametrize("scale", [3.0, 2.0**33])
def test_laplace_variance_is_within_five_standard_errors(scale: float) -> None:
    """Var = 2q/(1 − q)² for q = e^(−1/t); the kurtosis of a Laplace law is 6, so Var(s²) ≈ 5σ⁴/n."""
    drawn = discrete_laplace(DRAWS, scale, SeededStream("laplace variance", repr(scale))).astype(float)
    variance = 2 * math.exp(-1 / scale) / math.expm1(-1 / scale) ** 2
    assert abs(drawn.var() / variance - 1) < 5 * math.sqrt(5.2 / DRAWS)


def test_digits_of_a_geometric_variable_multiply_to_its_law() -> None:
    """P(digits) = Π P(digit): the first and last of each table against q^x(1 − q)."""
    scale = 5_000.0
    low, high = discrete.geometric_tables(scale)

    def chance(table: discrete.Table, value: int) -> float:
        cuts = [0, *table.cuts, 1 << 128]
        return (cuts[value + 1] - cuts[value]) / 2**128

    for x in (0, 1, 1023, 1024, 5_000, 20_000):
        law = math.exp(-x / scale) * -math.expm1(-1 / scale)
        assert chance(low, x % 1024) * chance(high, x // 1024) == pytest.approx(law, rel=1e-12)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_scales_without_a_sampler_are_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="up to 2"):
        discrete_laplace(1, scale, SeededStream(1))


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 1_000_003])
def test_both_libraries_give_the_same_stream(length: int) -> None:
    key, nonce = bytes(range(32)), bytes(range(12))
    assert chacha.openssl_stream(key, length, nonce).tobytes() == chacha.sodium_stream(key, length, nonce).tobytes()


def test_the_stream_is_rfc_8439s() -> None:
    """RFC 8439 §2.3.2: key 00..1f, nonce 000000090000004a00000000, block 1."""
    block = chacha.stream(bytes(range(32)), 64, bytes.fromhex("000000090000004a00000000")).tobytes()
    assert block[:16].hex() == "10f1e7e4d13b5915500fdd1fa32071c4"
    assert block[-4:].hex() == "a2503c4e"


def test_noise_does_not_depend_on_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    for openssl in (True, False):
        monkeypatch.setattr(chacha, "HAS_OPENSSL", openssl)
        drawn.append(discrete_gaussian(70_000, 700.0, SeededStream(3)))
    np.testing.assert_array_equal(drawn[0], drawn[1])


def test_no_word_is_given_twice_however_it_is_asked_for() -> None:
    stream, whole = SeededStream("pieces"), SeededStream("pieces")
    pieces = np.concatenate([stream.words(count) for count in (0, 1, 3, 200_000, 5, 131_072, 2)])
    assert len(np.unique(pieces)) == len(pieces)
    assert whole.words(4).tolist() == pieces[:4].tolist()


def test_fresh_streams_differ_and_cannot_be_seeded() -> None:
    assert not np.array_equal(FreshStream().words(4), FreshStream().words(4))
    with pytest.raises(TypeError):
        FreshStream(7)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="needs a seed"):
        SeededStream()


def test_no_part_of_a_device_imports_seeded_noise() -> None:
    package = Path(discrete.__file__).parents[1]
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            assert not [name for name in names if "privacy.simulation" in f"{module}.{name}"], path


def test_simulation_keeps_tables_of_more_deviations_and_draws_same() -> None:
    sigmas = [20.0 + k for k in range(20)]
    before = [discrete_gaussian(5, sigma, SeededStream(1)).tolist() for sigma in sigmas]
    keep_tables(32)
    try:
        for _ in range(2):
            assert [discrete_gaussian(5, sigma, SeededStream(1)).tolist() for sigma in sigmas] == before
        assert discrete.gaussian_table.cache_info().misses == len(sigmas)
    finally:
        keep_tables(16)
