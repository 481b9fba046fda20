"""Models and data of `coterie device run` and `coterie fleet run`: shards of the digits, or a user's function."""

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
    """A module, its training samples, and samples to evaluate it on (None = the same)."""

    model: torch.nn.Module
    data: Samples
    test_data: Samples | None = None


def digits_source(part: int, parts: int, *, seed: int = 0) -> Source:
    """Return one device's shard of the digits; `part` counts from 1."""
    if not 1 <= part <= parts:
        raise BadSource(f"part {part} of {parts} does not exist; parts count from 1")
    split = digits(parts, seed=seed)
    return Source(digits_model(), split.shards[part - 1], split.test)


def load_source(place: str) -> Source | Learner:
    """Call `file.py:function` or `package.module:function`, which returns a learner or (model, data[, test_data])."""
    function = load_function(place)
    with errors_of(place):
        result = function()
    return Source(*result) if isinstance(result, tuple) and len(result) in (2, 3) else _learner(result, place)


def learners_of(place: str, devices: int) -> list[Learner]:
    """Call `file.py:function` or `package.module:function` with (number, devices) for each number from 0."""
    function = load_function(place)
    with errors_of(place):
        return [_learner(function(number, devices), place) for number in range(devices)]


def digits_learners(devices: int, *, seed: int = 0) -> list[Learner]:
    """Make one learner per device, with uneven shards of the digits."""
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
    """Import the function `file.py:function` or `package.module:function`."""
    file, _, name = place.partition(":")
    path = Path(file)
    if not name or (file.endswith(".py") and not path.is_file()):
        raise BadSource(f"{place!r} must be file.py:function with a file that exists, or package.module:function")
    if not file.endswith(".py"):
        with errors_of(place):
            return _function_in(_import(file), file, name)
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if specification is None or specification.loader is None:
        raise BadSource(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    _add_to_path(path.parent)
    with errors_of(place):
        specification.loader.exec_module(module)
    return _function_in(module, file, name)


@contextmanager
def errors_of(place: str) -> Iterator[None]:
    """Turn an exception of the user's code into one line with its file and line number."""
    try:
        yield
    except (BadSource, KeyboardInterrupt):
        raise
    except Exception as error:
        package = Path(__file__).parents[1]
        frames = traceback.extract_tb(error.__traceback__)
        user_frames = [
            f for f in frames if package not in Path(f.filename).parents and "site-packages" not in f.filename
        ]
        where = f" in {user_frames[-1].filename}, line {user_frames[-1].lineno}" if user_frames else ""
        text = f": {error}" if str(error) else ""
        raise BadSource(f"{place} failed{where}: {type(error).__name__}{text}") from error


def _add_to_path(folder: Path) -> None:
    """Let a file import its neighbours, as `python file.py` does."""
    if str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))


def _import(name: str) -> Any:
    _add_to_path(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise BadSource(f"{name} cannot be imported ({error}); a file's name ends in .py") from error


def _function_in(module: Any, file: str, name: str) -> Callable[..., Any]:
    function: Callable[..., Any] | None = getattr(module, name, None)
    if function is None:
        raise BadSource(f"{file} has no function {name}")
    return function
