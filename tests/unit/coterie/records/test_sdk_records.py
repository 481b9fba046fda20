"""Answers as records: what is read, what is passed over, what is refused and how it is said."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import records
from coterie.errors import BadAnswer
from coterie.records import Items, Owner, Page, PrivacyReport, Record, Task, TaskState, Token
from coterie.records.base import Extended, Key, OpenEnum
from coterie.records.reading import read

EVERY = [getattr(records, name) for name in records.__all__]
KINDS = [kind for kind in EVERY if is_dataclass(kind) and kind not in (Items, Page)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf(Record):
    """Something of every type."""

    text: str
    count: int
    share: float
    bound: Extended
    key: Key
    flag: bool
    state: TaskState
    choice: Literal["left", "right"]
    figures: Mapping[str, float]
    free: Mapping[str, Any]
    added: int = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree(Record):
    """Leaves."""

    leaves: tuple[Leaf, ...]
    best: Leaf | None


LEAF = {
    "text": "ä",
    "count": 3,
    "share": 1,
    "bound": "inf",
    "key": "AAE=",
    "flag": True,
    "state": "running",
    "choice": "left",
    "figures": {"loss": 2},
    "free": {"any": [1, None]},
    "added": 1,
}
TREE = {"leaves": [LEAF, LEAF], "best": None}


def without(name: str) -> dict[str, Any]:
    return {"leaves": [LEAF, {key: value for key, value in LEAF.items() if key != name}], "best": LEAF}


def test_every_type_is_read_and_written_back() -> None:
    tree = Tree.from_json(TREE)
    leaf = tree.leaves[1]
    assert (leaf.key, leaf.bound, leaf.share, leaf.state) == (b"\x00\x01", math.inf, 1.0, TaskState.RUNNING)
    assert isinstance(leaf.share, float)
    assert leaf.figures == {"loss": 2.0}
    assert tree.best is None
    assert tree.to_dict() == TREE
    assert json.loads(json.dumps(tree.to_dict())) == TREE


def test_a_record_is_frozen() -> None:
    leaf = Leaf.from_json(LEAF)
    with pytest.raises(FrozenInstanceError):
        leaf.count = 4  # type: ignore[misc]


def test_fields_of_a_newer_platform_are_passed_over() -> None:
    newer = {**TREE, "soil": "clay", "best": {**LEAF, "colour": {"hue": 3}}}
    assert Tree.from_json(newer) == Tree.from_json({**TREE, "best": LEAF})


def test_a_field_an_older_platform_lacks_takes_its_default() -> None:
    assert Tree.from_json(without("added")).leaves[1].added == 7


def test_a_missing_field_without_a_default_is_named() -> None:
    with pytest.raises(BadAnswer, match=r"Tree\.leaves\[1\]\.count is missing; the platform may be older"):
        Tree.from_json(without("count"))


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("text", 3, "text"),
        ("text", None, "text"),
        ("count", 3.5, "a whole number"),
        ("count", True, "a whole number"),
        ("count", "3", "a whole number"),
        ("share", "many", "a number"),
        ("share", False, "a number"),
        ("share", 10**400, "a number"),
        ("key", "not base64!", "base64"),
        ("key", "AAE", "base64"),
        ("flag", 1, "true or false"),
        ("state", 3, "text"),
        ("choice", None, "text"),
        ("figures", [1], "an object"),
        ("free", "x", "an object"),
    ],
)
def test_a_value_of_another_type_is_named(name: str, value: object, wanted: str) -> None:
    with pytest.raises(BadAnswer, match=rf"Tree\.leaves\[0\]\.{name} should be {wanted}, not "):
        Tree.from_json({"leaves": [{**LEAF, name: value}], "best": None})


@pytest.mark.parametrize("given", [None, [], "x", 3, {"leaves": {}, "best": None}])
def test_another_shape_is_refused(given: object) -> None:
    with pytest.raises(BadAnswer, match=r"Tree(\.leaves)? should be (an object|a list)"):
        Tree.from_json(given)


def test_a_long_wrong_value_is_not_repeated_whole() -> None:
    with pytest.raises(BadAnswer) as caught:
        Tree.from_json({"leaves": "x" * 10_000, "best": None})
    assert len(str(caught.value)) < 200


def test_a_word_of_a_newer_platform_is_kept_as_text() -> None:
    state = TaskState("paused")
    assert state == "paused"
    assert f"{state}" == "paused"
    assert isinstance(state, TaskState)
    assert state not in list(TaskState)
    assert {"paused": 1, "running": 2}[state] == 1
    assert not state.has_ended
    assert {"running": 2}[TaskState.RUNNING] == 2
    with pytest.raises(ValueError, match="3 is not a valid TaskState"):
        TaskState(3)  # type: ignore[arg-type]


def test_three_states_are_an_end() -> None:
    assert [state.value for state in TaskState if state.has_ended] == ["finished", "failed", "cancelled"]


def test_pages_and_lists_hold_records() -> None:
    owner = {"id": "own_1", "name": "Ada", "created_at": 5, "sharing": "own", "public": False}
    page = read(Page[Owner], {"items": [owner], "next_cursor": "own_1"})
    assert page.items[0].name == "Ada"
    assert page.to_dict() == {"items": [owner], "next_cursor": "own_1"}
    assert read(Items[Owner], {"items": []}).items == ()
    with pytest.raises(BadAnswer, match=r"Page\.items\[0\]\.name is missing"):
        read(Page[Owner], {"items": [{"id": "own_1"}], "next_cursor": ""})


def test_a_secret_is_not_shown_by_accident() -> None:
    token = Token(id="tok_1", token="ct_secret", expires_at=0.0)
    assert "ct_secret" not in repr(token)
    assert token.to_dict()["token"] == "ct_secret"


def test_infinite_privacy_is_a_number_to_calculate_with() -> None:
    document = {"device_id": "dev_1", "delta": 1e-6, "epsilon": "inf", "tasks": []}
    report = PrivacyReport.from_json(document)
    assert report.epsilon > 1e9
    assert report.to_dict().items() >= document.items()  # and what an older platform does not tell


def documents(hint: Any) -> st.SearchStrategy[Any]:
    """JSON that fits a hint."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return documents(arguments[0])
    if hint in JSON_OF:
        return JSON_OF[hint]
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(documents(arguments[0]), max_size=2)
    if origin is Mapping:
        return st.dictionaries(st.text(max_size=3), documents(arguments[1]), max_size=2)
    if origin is UnionType:
        return st.one_of(*map(documents, arguments))
    if issubclass(hint, OpenEnum):
        return st.one_of(st.sampled_from([word.value for word in hint]), st.text(max_size=5))
    hints = get_type_hints(hint, include_extras=True)
    return st.fixed_dictionaries({field.name: documents(hints[field.name]) for field in fields(hint)})


JSON_OF: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=5),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False).map(lambda x: x if math.isfinite(x) else "inf" if x > 0 else "-inf"),
    bool: st.booleans(),
    bytes: st.sampled_from(["", "AAE=", "A" * 43 + "="]),
    type(None): st.none(),
    Any: st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=3) | st.just({"a": [1.5]}),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_whatever_fits_a_record_comes_back_as_it_was(kind: type[Record]) -> None:
    """to_dict ∘ from_json is the identity on documents that fit."""

    @given(documents(kind))
    @settings(max_examples=20)
    def comes_back(document: dict[str, Any]) -> None:
        record = kind.from_json(document)
        assert record.to_dict() == document
        assert kind.from_json(record.to_dict()) == record

    comes_back()


def test_a_task_reads_like_a_sentence() -> None:
    """What the SDK is for: `task.specification.rounds`, known to an editor and to a type checker."""
    hints = get_type_hints(Task)
    assert hints["state"] is TaskState
    assert hints["specification"] is records.TaskSpecification
