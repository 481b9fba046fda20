"""`coterie demo secure`: the noise it asks for is that of ε = 4 over all rounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coterie.privacy.accounting import NOTHING, gaussian_charge, total
from coterie_cli.demos import demos
from coterie_cli.demos.secure import DELTA, EPSILON, SPARE, noise_for


@pytest.mark.parametrize("rounds", [1, 10, 50])
def test_all_rounds_and_spare_sessions_cost_the_declared_epsilon(rounds: int) -> None:
    sums = rounds + SPARE
    rho = sums / (2 * noise_for(rounds) ** 2)
    assert replace(NOTHING, gaussian_rho=rho).epsilon(DELTA) == pytest.approx(EPSILON, abs=1e-6)
    charges = [gaussian_charge("t", number, "sum", "device", noise_for(rounds)) for number in range(1, sums + 1)]
    assert total(charges, DELTA, "device") == pytest.approx(EPSILON, abs=1e-3)


def test_demo_is_registered_by_name() -> None:
    assert "sees only sums" in demos()["secure"].about
