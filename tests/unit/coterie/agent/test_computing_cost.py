"""What computing costs a device: measured where the system tells, by hand where it does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coterie.agent.computing_cost import (
    ASSUMED_HERTZ,
    CAPACITANCE,
    Effort,
    Meter,
    Tariff,
    effort_of,
    frequency,
    tariff_of,
)


def test_a_round_costs_kappa_xi_f_d_l() -> None:
    """κ = 1e-18, ξ = 2e6 cycles, f = 1e9: 0.002 credits a sample; D = 50, L = 3: 0.3 ([MPPFL] section 2.4)."""
    assert Effort(2e6, 1e9).cost(Tariff(kappa=1e-18), 50, 3) == pytest.approx(0.3)


def test_energy_without_counter_follows_cycles_and_clock() -> None:
    """κ′ξf² = 1e-28 · 2e6 · 1e18 = 2e-4 joules a sample; at 0.1 credits a joule 100 samples cost 0.002."""
    tariff = Tariff(credits_per_joule=0.1)
    assert Effort(2e6, 1e9).cost(tariff, 100, 1) == pytest.approx(100 * CAPACITANCE * 2e6 * 1e18 * 0.1)
    assert Effort(2e6, 1e9, joules_per_sample=0.5).cost(tariff, 100, 1) == pytest.approx(5.0)


def test_the_clock_is_what_the_system_says(tmp_path: Path) -> None:
    assert frequency(tmp_path) == ASSUMED_HERTZ
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\ncpu MHz\t\t: 2000.0\n\ncpu MHz\t\t: 3000.0\n")
    assert frequency(tmp_path) == 2.5e9
    for cpu, kilohertz in ((0, 1_000_000), (1, 2_000_000)):
        place = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
        place.mkdir(parents=True)
        (place / "scaling_cur_freq").write_text(f"{kilohertz}\n")
    assert frequency(tmp_path) == 1.5e9


def test_energy_is_shared_by_processor_time(tmp_path: Path) -> None:
    """The packages used 3 joules while all processes used as much processor time as this one, or twice as much."""
    powercap = tmp_path / "sys/class/powercap/intel-rapl:0"
    powercap.mkdir(parents=True)
    (tmp_path / "proc").mkdir()

    def write_counters(microjoules: int, seconds: float) -> None:
        (powercap / "energy_uj").write_text(f"{microjoules}\n")
        ticks = int(seconds * os.sysconf("SC_CLK_TCK"))
        (tmp_path / "proc/stat").write_text(f"cpu  {ticks} 0 0 99999 0\n")

    write_counters(5_000_000, 100.0)
    with Meter(tmp_path) as meter:
        sum(range(1000))
        write_counters(8_000_000, 200.0)
    assert meter.joules is not None
    assert meter.joules == pytest.approx(3.0 * meter.seconds / 100.0)
    assert meter.effort(10).joules_per_sample == pytest.approx(meter.joules / 10)
    write_counters(8_000_000, 200.0)
    with Meter(tmp_path) as turned:
        write_counters(1_000, 300.0)
    assert turned.joules is None, "the counter wrapped around"


def test_processor_time_becomes_cycles_and_measurements_settle() -> None:
    with Meter() as meter:
        sum(range(200_000))
    result = meter.effort(100)
    assert meter.seconds > 0
    assert result.cycles_per_sample == pytest.approx(meter.seconds * result.hertz / 100)
    later = Effort(300.0, 2e9, 3.0).after(Effort(100.0, 1e9, 1.0))
    assert (later.cycles_per_sample, later.hertz, later.joules_per_sample) == (200.0, 1.5e9, 2.0)
    assert Effort(300.0, 2e9).after(Effort(100.0, 1e9, 1.0)).joules_per_sample is None


@pytest.mark.parametrize("bad", [{"kappa": -1.0}, {"credits_per_joule": float("nan")}, {"price": 1.0}, {"kappa": "x"}])
def test_a_price_that_makes_no_sense_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises((TypeError, ValueError)):
        tariff_of({"computing": bad})
    assert (tariff_of({}), effort_of({})) == (None, None)
