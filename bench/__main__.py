"""`make bench`: every benchmark in turn, each in a separate process. `python -m bench NAME …` runs only those named.

Figures are measured on the machine at hand; where a goal is a ratio, both sides run in the same process and run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))


def main(wanted: list[str]) -> int:
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        sys.stderr.write(f"no benchmark {', '.join(unknown)}; choose from: {', '.join(NAMES)}\n")
        return 2
    print(f"{os.cpu_count()} cores")
    failed = []
    for name in wanted or NAMES:
        print(f"\n== {name}", flush=True)
        if subprocess.run([sys.executable, str(FOLDER / f"{name}.py")], check=False).returncode:
            failed.append(name)
    if failed:
        sys.stderr.write(f"failed: {', '.join(failed)}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
