"""How fast the mesh planner is: seconds, ratio to the one-inverse-per-step reference in the same run, and memory.

    OMP_NUM_THREADS=1 python bench/mesh_planner.py [--full]

Seconds are processor seconds of this process, so other work on the machine does not count.
Wi-Fi/LoRa times on a 300 m square, Raspberry Pi 2, 3 and 4. `--full` adds V = 512 and 1,000 (minutes).
"""

from __future__ import annotations

import argparse
import resource
import time

from coterie_lab.mesh import GRAPHS, radio_network
from services.topology.domain.betta_fast import plan_mesh_with_drift
from services.topology.domain.betta_network import MeshRules
from services.topology.domain.betta_reference import plan_mesh_reference


def measure(kind: str, count: int, *, reference: bool) -> str:
    """One line of the table; the kernels are compiled before the clock starts."""
    network, rules = radio_network(kind, count, 0), MeshRules()
    start = time.process_time()
    plan, drift = plan_mesh_with_drift(network, rules)
    fast = time.process_time() - start
    ratio = ""
    if reference:
        start = time.process_time()
        check = plan_mesh_reference(network, rules)
        slow = time.process_time() - start
        same = (plan.pairs, plan.dp_budget) == (check.pairs, check.dp_budget)
        ratio = f"reference {slow:8.2f} s  {slow / fast:6.0f} ×  {'same plan' if same else 'DIFFERENT PLAN'}"
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"{count:5d}  {kind:13s}  {fast:8.2f} s  {len(plan.pairs):8d} links  drift {drift:.1e}  "
        f"n {plan.dp_budget:4d}  peak {memory:5.0f} MB  {ratio}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true")
    full = parser.parse_args().full
    plan_mesh_with_drift(radio_network("hubs", 8, 0), MeshRules())
    for count in (16, 32, 64, 128, 256):
        for kind in GRAPHS:
            print(measure(kind, count, reference=count <= 32 or (count == 64 and kind == "small world")), flush=True)
    for count in (512, 1000) if full else ():
        for kind in ("hubs", "small world"):
            print(measure(kind, count, reference=False), flush=True)


if __name__ == "__main__":
    main()
