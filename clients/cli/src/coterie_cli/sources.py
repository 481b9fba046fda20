"""What `coterie device run` and `coterie fleet run` train: parts of the digits, or what a function returns."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.samples import BadSource, digits, digits_model

if TYPE_CHECKING:
    import torch

    from coterie.learning.batches import Samples
    from coterie.learning.learner import Learner


@dataclass(frozen=True, slots=True)
class Source:
    """What a device trains: a module, its samples, and samples to measure it on (None = the same)."""

    model: torch.nn.Module
    data: Samples
    test_data: Samples | None = None


def digits_source(part: int, parts: int, *, seed: int = 0) -> Source:
    """One device's part of the digits, counted from 1."""
    if not 1 <= part <= parts:
        raise BadSource(f"part {part} of {parts} does not exist; parts count from 1")
    split = digits(parts, seed=seed)
    return Source(digits_model(), split.shards[part - 1], split.test)


def load_source(place: str) -> Source | Learner:
    """What `file.py:function` or `package.module:function` returns: a learner, (model, data[, test_data])."""
    function = load_function(place)
    with told_where(place):
        made = function()
    return Source(*made) if isinstance(made, tuple) and len(made) in (2, 3) else _learner(made, place)


def learners_of(place: str, devices: int) -> list[Learner]:
    """What `file.py:function` or `package.module:function` returns for (number, devices), number from 0 on."""
    function = load_function(place)
    with told_where(place):
        return [_learner(function(number, devices), place) for number in range(devices)]


def digits_learners(devices: int, *, seed: int = 0) -> list[Learner]:
    """Parts of the digits, dealt unevenly."""
    from coterie.learning.torch_learner import TorchLearner

    return [TorchLearner(digits_model(), shard) for shard in digits(devices, seed=seed).shards]


def _learner(made: Any, place: str) -> Learner:
    if isinstance(made, tuple) and len(made) in (2, 3):
        from coterie.learning.torch_learner import TorchLearner

        return TorchLearner(made[0], made[1], test_data=made[2] if len(made) == 3 else None)
    if not all(hasattr(made, name) for name in ("samples", "parameters", "load", "train", "evaluate")):
        raise BadSource(
            f"{place} must return a learner, (model, data) or (model, data, test_data), not {type(made).__name__}"
        )
    learner: Learner = made
    return learner


def load_function(place: str) -> Callable[..., Any]:
    """The function that `file.py:function` or `package.module:function` names."""
    file, _, name = place.partition(":")
    path = Path(file)
    if not name or (file.endswith(".py") and not path.is_file()):
        raise BadSource(f"{place!r} must be file.py:function with a file that exists, or package.module:function")
    if not file.endswith(".py"):
        with told_where(place):
            return _function_in(_imported(file), file, name)
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if specification is None or specification.loader is None:
        raise BadSource(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    _look_in(path.parent)
    with told_where(place):
        specification.loader.exec_module(module)
    return _function_in(module, file, name)


@contextmanager
def told_where(place: str) -> Iterator[None]:
    """What the author's code raises becomes one line that says where; nobody needs to see this package's frames."""
    try:
        yield
    except (BadSource, KeyboardInterrupt):
        raise
    except Exception as error:
        here = Path(__file__).parents[1]
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if here not in Path(f.filename).parents and "site-packages" not in f.filename]
        where = f" in {own[-1].filename}, line {own[-1].lineno}" if own else ""
        said = f": {error}" if str(error) else ""
        raise BadSource(f"{place} failed{where}: {type(error).__name__}{said}") from error


def _look_in(folder: Path) -> None:
    """Lets a file import those beside it, as python does with a file it is given."""
    if str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))


def _imported(name: str) -> Any:
    _look_in(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise BadSource(f"{name} cannot be imported ({error}); a file's name ends in .py") from error


def _function_in(module: Any, file: str, name: str) -> Callable[..., Any]:
    function: Callable[..., Any] | None = getattr(module, name, None)
    if function is None:
        raise BadSource(f"{file} has no function {name}")
    return function
