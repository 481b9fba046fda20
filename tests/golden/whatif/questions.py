"""Questions to the first what-if solvers, drawn with a fixed seed, and their answers.

`python tests/golden/whatif/questions.py FILE` stores questions and answers; `--against FILE` prints the answers whose
bytes differ from the stored ones.
"""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from services.kit.runtime import whatif
from services.pricing.whatif import SOLVERS as PRICING
from services.topology.whatif import SOLVERS as TOPOLOGY
from services.trust.whatif import SOLVERS as TRUST

STORED = Path(__file__).parent / "answers.json.gz"
MODULES = TRUST | TOPOLOGY | PRICING
Document = dict[str, Any]


class Asked(NamedTuple):
    """A question and its answer, the exit status and the text on standard output."""

    solver: str
    question: Document
    status: int
    answer: str


def ask(solver: str, question: Document) -> Asked:
    """The answer of this tree."""
    out = io.StringIO()
    status = whatif.run(MODULES, [solver], io.StringIO(json.dumps(question)), out)
    return Asked(solver, question, status, out.getvalue())


def stored() -> list[Asked]:
    """Return the stored questions and answers."""
    return [Asked(*row) for row in json.loads(gzip.decompress(STORED.read_bytes()))]


def questions() -> Iterator[tuple[str, Document]]:
    """All of them, a solver at a time."""
    rng = np.random.default_rng(20_251)
    for solver, drawn in (
        ("scores", _scores),
        ("clusters", _clusters),
        ("mesh", _mesh),
        ("noise", _noise),
        ("blocks", _blocks),
        ("identity", _identity),
        ("market", _market),
        ("survey", _survey),
    ):
        for question in drawn(rng):
            yield solver, question


def _rounded(values: Any, digits: int = 3) -> Any:
    return np.round(values, digits).tolist()


def _symmetric(rng: np.random.Generator, size: int, share: float, low: float = 0.0, high: float = 1.0) -> Any:
    """A symmetric matrix with a zero diagonal, a share of its pairs above nothing."""
    upper = np.triu(rng.uniform(low, high, (size, size)) * (rng.random((size, size)) < share), 1)
    return np.round(upper + upper.T, 3)


def _scores(rng: np.random.Generator) -> Iterator[Document]:
    for size in (1, 2, 3, 5, 8):
        meetings = [
            {
                "a": int(pair[0]),
                "b": int(pair[1]),
                "positive": bool(rng.random() < 0.8),
                "duration": round(float(rng.uniform(0, 8)), 2),
                "at": round(float(rng.uniform(0, 100)), 1),
            }
            for pair in (rng.permutation(size)[:2] for _ in range(4 * size if size > 1 else 0))
        ]
        yield {"devices": size, "interactions": meetings}
        yield {"devices": size, "interactions": meetings, "now": 120, "decay_rate": 0.01, "penalty": 2.5}
        yield {"devices": size + 1, "interactions": meetings, "full_duration": 4, "direct_weight": 0.6}
    for size, share in ((3, 0.9), (6, 0.5), (9, 0.3)):
        direct = _symmetric(rng, size, share).tolist()
        yield {"direct": direct}
        yield {"direct": direct, "direct_weight": 0.3}
    yield {"devices": 2, "interactions": [{"a": 0, "b": 5, "positive": True, "duration": 1, "at": 0}]}
    yield {"direct": [[0, 2], [2, 0]]}


def _clusters(rng: np.random.Generator) -> Iterator[Document]:
    for size, share in ((1, 0.0), (2, 1.0), (4, 0.8), (6, 0.6), (9, 0.5), (12, 0.3)):
        direct = _symmetric(rng, size, share).tolist()
        yield {"direct": direct}
        yield {"direct": direct, "method": "sweep", "calibration": "exact"}
        yield {"direct": direct, "non_iid": _rounded(rng.uniform(0.2, 1, size)), "head_reward": 0.05}
        yield {"direct": direct, "trust_threshold": 0.5, "noise_max": 0.9, "direct_weight": 0.5}
    grand = _symmetric(rng, 5, 1.0, 0.6).tolist()
    yield {"direct": grand, "start": [[0, 1, 2, 3, 4]]}
    yield {"direct": grand, "start": [[0, 1], [2], [3, 4]], "method": "sweep"}
    yield {"direct": [[0, 2], [2, 0]]}
    yield {"direct": grand, "start": [[0, 1]]}


def _mesh(rng: np.random.Generator) -> Iterator[Document]:
    for size in (1, 2, 3, 5, 8, 12):
        order = rng.permutation(size)
        path = {tuple(sorted((int(a), int(b)))) for a, b in pairwise(order)}
        extra = {(int(a), int(b)) for a in range(size) for b in range(a + 1, size) if rng.random() < 0.3}
        base: Document = {
            "devices": size,
            "trusted": sorted(list(pair) for pair in path | extra),
            "link_seconds": _symmetric(rng, size, 1.0, 0.5, 20.0).tolist(),
            "batch_seconds": _rounded(rng.uniform(0.5, 6, size)),
        }
        yield base
        yield base | {"epsilon": 0.2, "transfers": "shared"}
        yield base | {"max_degree": 3, "basic_batch": 8, "samples": [int(n) for n in rng.integers(5, 400, size)]}
        yield base | {"links": sorted(list(pair) for pair in path)}
    yield {
        "devices": 3,
        "trusted": [[0, 1]],
        "link_seconds": [[0, 1, 1], [1, 0, 1], [1, 1, 0]],
        "batch_seconds": [1] * 3,
    }


def _noise(rng: np.random.Generator) -> Iterator[Document]:
    for size in (1, 2, 5, 10):
        samples = [int(n) for n in rng.integers(1, 200, size)]
        yield {"samples": samples}
        yield {"samples": samples, "clip": 2.5, "dimension": 100, "smoothness": 4, "privacy_weight": 0.5}
        yield {"samples": samples, "low": [0.1] * size, "high": ["inf", *[0.5] * (size - 1)]}
    yield {"samples": [0, 1]}


def _blocks(rng: np.random.Generator) -> Iterator[Document]:
    for rows, columns in ((1, 1), (3, 2), (4, 6), (8, 5)):
        delay = rng.uniform(0.05, 0.8, (rows, columns))
        table: Any = _rounded(delay)
        table[0][0] = "inf"
        yield {"delay": table}
        yield {"delay": table, "limit": 0.2}
        yield {"delay": table, "limit": "inf"}
    yield {"delay": [[1, 2], [3]]}


def _identity(rng: np.random.Generator) -> Iterator[Document]:
    for devices, models in ((1, 1), (3, 2), (7, 4)):
        loss = _rounded(rng.uniform(0.1, 3, (devices, models)))
        similarity = _rounded(rng.uniform(-1, 1, (devices, models)))
        yield {"loss": loss}
        yield {"loss": loss, "similarity": similarity}
        yield {"loss": loss, "similarity": similarity, "weight": 0.9}
    yield {"loss": [[1, 2]], "weight": 2}


def _market(rng: np.random.Generator) -> Iterator[Document]:
    for size, share in ((1, 0.0), (2, 1.0), (5, 0.5), (12, 0.3)):
        influence = (rng.uniform(0, 1, (size, size)) * (rng.random((size, size)) < share)).round(3)
        np.fill_diagonal(influence, 0.0)
        network: Document = {"influence": influence.tolist()}
        for solver in ("exact", "mean-field", "iterate", "agnostic"):
            yield network | {"solver": solver}
            yield network | {
                "solver": solver,
                "hops": 3,
                "discount": 0.7,
                "risk_weight": 0.2,
                "cost_quadratic": _rounded(rng.uniform(0.5, 2, size)),
                "cost_linear": _rounded(rng.uniform(0.01, 0.1, size)),
                "cost_fixed": 0.001,
                "accuracy_weight": _rounded(rng.uniform(0, 2, size)),
                "balance": 0.7,
                "round": 4,
            }
        yield network | {"price": 0.5, "floor": 0.1}
    edges = [[int(a), int(b), round(float(rng.random()), 3)] for a, b in rng.integers(0, 9, (20, 2)) if a != b]
    yield {"edges": edges, "devices": 9}
    yield {"edges": edges, "devices": 9, "price": 0.0}
    yield {"influence": [[0, 1], [1, 0]], "risk_weight": 1.5}
    yield {}


def _survey(rng: np.random.Generator) -> Iterator[Document]:
    for size in (2, 3, 5, 9):
        statistics: Document = {
            "correlation": _symmetric(rng, size, 1.0, 0.2, 3.0).tolist(),
            "care": _rounded(rng.uniform(0, 0.3, (size, size)) + np.diag(rng.uniform(0.4, 1, size))),
        }
        for prices in ("pivot", "even", "personal"):
            yield statistics | {"prices": prices}
            yield statistics | {"prices": prices, "budget": 7, "constant": 5, "error": 9, "variance_model": "exact"}
        yield statistics | {"budget": 0.5}
        yield statistics | {"budget": 1000, "variance_low": 1.0, "variance_high": 50.0}
        yield statistics | {"variance_high": "inf"}
    yield {"correlation": [[0, 1], [1, 0]], "care": [[1]]}


def main(argv: list[str]) -> int:
    """Stores, or compares."""
    if argv[:1] == ["--against"] and len(argv) == 2:
        rows = [Asked(*row) for row in json.loads(gzip.decompress(Path(argv[1]).read_bytes()))]
        other = [row for row in rows if ask(row.solver, row.question) != row]
        for row in other:
            print(row.solver, json.dumps(row.question)[:200], row.answer[:300], ask(*row[:2]).answer[:300], sep="\n  ")
        print(f"{len(rows) - len(other)} of {len(rows)} answers are the same bytes")
        return bool(other)
    text = json.dumps([ask(solver, question) for solver, question in questions()])
    Path(argv[0]).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
