"""Enums on the wire, classes in Python and words in tables are the same words."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from coterie.records import enums
from coterie.records.base import OpenEnum
from coterie.records.enums import EventKind, Form, Role, TaskState
from coterie_api.enums.v1 import enums_pb2
from services.kit.database.rows import EnumColumn
from services.kit.rpc.enums import number, number_in, prefix_of, text_in, word

ENUMS = enums_pb2.DESCRIPTOR.enum_types_by_name


@pytest.mark.parametrize("name", sorted(ENUMS))
def test_an_enum_has_exactly_the_members_of_the_class_of_its_name(name: str) -> None:
    kind: type[OpenEnum] = getattr(enums, name)
    prefix = prefix_of(ENUMS[name])
    assert ENUMS[name].values_by_number[0].name == f"{prefix}UNSPECIFIED"
    assert {value.name.removeprefix(prefix) for value in ENUMS[name].values[1:]} == set(kind.__members__)
    for member in kind:
        assert word(kind, number(member)) is member


def test_a_number_is_its_word_and_the_unspecified_one_is_the_empty_word() -> None:
    assert word(TaskState, enums_pb2.TASK_STATE_RUNNING) is TaskState.RUNNING
    assert word(EventKind, enums_pb2.EVENT_KIND_TASK_STARTED) == "task.started"
    assert number(Role.HEAD) == enums_pb2.ROLE_HEAD
    assert (word(Form, 0), number_in("Form", "")) == ("", 0)


def test_a_newer_services_number_is_shown_and_no_member() -> None:
    assert text_in("TaskState", 99) == "99"
    assert word(TaskState, 99) not in list(TaskState)


def test_an_unknown_word_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="must be one of solo, head, member, peer, idle, not 'king'"):
        number_in("Role", "king")


def test_a_column_of_words_is_text_in_the_table() -> None:
    table = sa.Table("t", sa.MetaData(), sa.Column("form", EnumColumn(Form, 8)))
    engine = sa.create_engine("sqlite://")
    with engine.begin() as tx:
        table.create(tx)
        tx.execute(table.insert(), [{"form": Form.SUM}, {"form": None}])
        assert list(tx.exec_driver_sql("SELECT form FROM t").scalars()) == ["sum", ""]
        result = list(tx.execute(sa.select(table.c.form)).scalars())
    engine.dispose()
    assert result[0] is Form.SUM
    assert result[1] is None
