"""Transactions on SQLite that go past most of SQLAlchemy: a statement's text and shape are made once.

SQLAlchemy looks a statement up by all its parts, makes a context, a cursor and a greenlet for every execution, and
takes a connection from its pool for every transaction: several times what SQLite needs to run a statement of a round.
Here a statement that is run again is known by being the same object. Its text, where its values come from, how they are
stored and read, are kept. Results are SQLAlchemy's own, and so are errors.

What is asked rarely (streams, reflection, inserts that return what they made) goes through SQLAlchemy on the same
connection and in the same transaction.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import sqlalchemy as sa
from sqlalchemy.engine.result import IteratorResult, SimpleResultMetaData
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.compiler import SQLCompiler

from services.kit.database.sqlite import ShortConnection

MOST_KEPT = 5_000
"""Statements whose text is kept; they are as many as the code has, but for those made anew each time."""
MOST_LENGTHS = 200
"""Lengths of lists for which a statement's text is kept."""
Values = Mapping[str, Any]


class Found(IteratorResult[Any]):
    """A result whose rows are all there."""

    rowcount: int = -1


class _Place(NamedTuple):
    """Where a value of a statement comes from: a parameter or one of a parameter's list, or it is always the same."""

    name: str | None
    value: Any = None
    stored: Callable[[Any], Any] | None = None
    at: int = -1


@dataclass(frozen=True, slots=True)
class Shape:
    """What the rows of a statement are made of."""

    metadata: SimpleResultMetaData

    @classmethod
    def of(cls, compiled: SQLCompiler, dialect: sa.Dialect) -> Shape | None:
        """The shape of a statement's rows; None when only the database knows it."""
        entries = compiled._result_columns
        if not entries:
            return None
        read = [entry.type._cached_result_processor(dialect, None) for entry in entries]
        return cls(SimpleResultMetaData([entry.keyname for entry in entries], _processors=read))

    @classmethod
    def told(cls, description: Sequence[Sequence[Any]] | None) -> Shape:
        """The shape that a cursor tells of."""
        return cls(SimpleResultMetaData([column[0] for column in description or ()]))


@dataclass(frozen=True, slots=True)
class Made:
    """A statement that was made once, for parameters of these names."""

    text: str
    places: tuple[_Place, ...]
    shape: Shape | None

    def values(self, given: Values) -> tuple[Any, ...]:
        """The values in the order of the text."""
        found = []
        for name, value, stored, at in self.places:
            told = value if name is None else given[name] if at < 0 else given[name][at]
            found.append(told if stored is None else stored(told))
        return tuple(found)


class _Kept:
    """A statement that is made once for parameters of these names, and for each length of the lists among them."""

    def __init__(self, compiled: SQLCompiler, names: tuple[str, ...], shape: Shape | None) -> None:
        self._compiled, self._names, self._shape = compiled, names, shape
        lists = {each.key for each in compiled.post_compile_params}
        self._lists = tuple(name for name in names if name in lists)
        self._by_lengths: dict[tuple[int, ...], Made] = {}

    def made(self, given: Values) -> Made:
        """For these lists."""
        lengths = tuple([len(given[name]) for name in self._lists]) if self._lists else ()
        made = self._by_lengths.get(lengths)
        if made is None:
            if len(self._by_lengths) >= MOST_LENGTHS:
                self._by_lengths.clear()
            made = self._by_lengths[lengths] = self._make(dict(zip(self._lists, lengths, strict=True)))
        return made

    def _make(self, lengths: Mapping[str, int]) -> Made:
        compiled = self._compiled
        marks: dict[str, Any] = {name: _Place(name) for name in self._names}
        marks |= {name: [_Place(name, at=k) for k in range(length)] for name, length in lengths.items()}
        found = dict(compiled.construct_params(marks, escape_names=False))
        _with_defaults(compiled, found, is_constant=True)
        text, stored = compiled.string, dict(compiled._bind_processors)
        order: Sequence[str] | None = compiled.positiontup
        if compiled.post_compile_params:
            expanded = compiled._process_parameters_for_postcompile(found)
            text, order = expanded.statement, expanded.positiontup
            stored.update(expanded.processors)
            found.update(expanded.additional_parameters)
        how = cast("dict[str, Callable[[Any], Any]]", stored)
        places = []
        for key in order or ():
            value, store = found[key], how.get(key)
            if isinstance(value, _Place):
                places.append(value._replace(stored=store))
            else:
                places.append(_Place(None, value if store is None else store(value)))
        return Made(text, tuple(places), self._shape)


class Statements:
    """The statements of one database."""

    def __init__(self, dialect: sa.Dialect) -> None:
        self._dialect = dialect
        self._compiled: dict[Any, Any] = {}
        self._kept: dict[int, tuple[weakref.ref[Any], dict[tuple[str, ...], _Kept | None]]] = {}

    def made(self, statement: sa.Executable, given: Values) -> Made | None:
        """The statement for parameters of the names given, if it was run before and can be kept."""
        known = self._kept.get(id(statement))
        if known is None or known[0]() is not statement:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[id(statement)] = (weakref.ref(statement), {})
            return None
        names = tuple(given)
        if names not in known[1]:
            known[1][names] = self._keep(statement, names)
        kept = known[1][names]
        return None if kept is None else kept.made(given)

    def _keep(self, statement: Any, names: tuple[str, ...]) -> _Kept | None:
        compiled = statement.compile(dialect=self._dialect, column_keys=sorted(names), for_executemany=True)
        if not isinstance(compiled, SQLCompiler) or compiled.literal_execute_params:
            return None
        if compiled.isinsert and compiled.effective_returning:
            return None
        return (
            _Kept(compiled, names, Shape.of(compiled, self._dialect))
            if _with_defaults(compiled, {}, is_constant=True)
            else None
        )

    def once(self, statement: Any, given: Sequence[Values]) -> tuple[str, list[tuple[Any, ...]], Shape | None] | None:
        """Text, values and shape of a statement that is run for the first time; None when SQLAlchemy had better."""
        names = sorted(given[0]) if given else []
        options: Any = {"compiled_cache": self._compiled, "column_keys": names, "for_executemany": True}
        if len(self._compiled) >= MOST_KEPT:
            self._compiled.clear()
        compiled, extracted, collected, _ = statement._compile_w_cache(self._dialect, **options)
        if not isinstance(compiled, SQLCompiler) or (compiled.isinsert and compiled.effective_returning):
            return None
        sets = [
            compiled.construct_params(
                values, escape_names=False, _group_number=k, extracted_parameters=extracted, _collected_params=collected
            )
            for k, values in enumerate(given or [{}])
        ]
        if not all(_with_defaults(compiled, each, is_constant=False) for each in sets):
            return None
        text, stored = compiled.string, dict(compiled._bind_processors)
        order: Sequence[str] | None = compiled.positiontup
        if compiled.post_compile_params or compiled.literal_execute_params:
            if len(sets) > 1:
                return None
            expanded = compiled._process_parameters_for_postcompile(sets[0])
            text, order = expanded.statement, expanded.positiontup
            stored.update(expanded.processors)
        keys, how = order or (), cast("dict[str, Callable[[Any], Any]]", stored)
        rows = [tuple([how[key](each[key]) if key in how else each[key] for key in keys]) for each in sets]
        return text, rows, Shape.of(compiled, self._dialect)


def _with_defaults(compiled: SQLCompiler, values: Any, *, is_constant: bool) -> bool:
    """Adds the defaults of columns that were given no value; False when one must be made by SQLAlchemy."""
    for column in (*compiled.insert_prefetch, *compiled.update_prefetch):
        default: Any = column.default if compiled.isinsert else column.onupdate
        if default is None or not (default.is_scalar or (default.is_callable and not is_constant)):
            return False
        values[compiled._within_exec_param_key_getter(column)] = default.arg if default.is_scalar else default.arg(None)
    return True


class SwiftTx:
    """A transaction as stores use one: as much of an `AsyncConnection` as they ask for, and all of it by way of one."""

    def __init__(self, connection: AsyncConnection, driver: ShortConnection, statements: Statements) -> None:
        self._connection, self._driver, self._statements = connection, driver, statements
        self.dialect = connection.dialect

    async def execute(self, statement: Any, parameters: Any = None) -> Any:
        """Runs a statement, for one set of parameters or for each of many."""
        given = [] if parameters is None else [parameters] if isinstance(parameters, Mapping) else parameters
        many = len(given) > 1
        made = self._statements.made(statement, given[0] if given else {})
        if made is not None:
            rows = [made.values(each) for each in given or ({},)]
            return await self._run(made.text, rows if many else rows[0], made.shape, many=many)
        found = self._statements.once(statement, given)
        if found is None:
            return await self._connection.execute(statement, parameters)
        text, rows, shape = found
        return await self._run(text, rows if many else rows[0], shape, many=many)

    async def exec_driver_sql(self, text: str, parameters: Any = ()) -> Any:
        """Runs a text as the driver takes it, for one tuple of values or for each of many."""
        many = isinstance(parameters, list)
        return await self._run(text, parameters, None, many=many)

    async def _run(self, text: str, values: Sequence[Any], shape: Shape | None, *, many: bool) -> Found:
        try:
            rows, told, count = await self._driver.answer(text, values, many=many)
        except sqlite3.Error as error:
            raise self._refused(text, values, error) from error
        found = Found((shape or Shape.told(told)).metadata, iter(rows))
        found.rowcount = count
        return found

    async def commit(self) -> None:
        """Commits; what is checked or written only now may fail as a statement does."""
        if self._connection.in_transaction():
            await self._connection.commit()
            return
        try:
            await self._driver.commit()
        except sqlite3.Error as error:
            raise self._refused("COMMIT", (), error) from error

    def _refused(self, text: str, values: Sequence[Any], error: sqlite3.Error) -> BaseException:
        return sa.exc.DBAPIError.instance(text, values, error, sqlite3.Error, dialect=self.dialect)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)
