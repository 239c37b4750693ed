"""The tables of a ledger, and their completion where a ledger is from before a column existed.

`schema.sql` is the only definition: a column that a table lacks has its default there. A reader takes it from there,
and a controller that resumes the run adds the column. So a new column needs no migration.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias

VERSION = 3
"""Format of a ledger and its segments, raised when an older barnraise could not read all of it.

3: the first record of a commit has a magic of its own, which an older one takes for damage.
"""

READABLE = (2, VERSION)
"""Formats that this barnraise reads, and continues in its own."""


class Column(NamedTuple):
    """One column; `default` as SQL, None for one that every ledger has."""

    name: str
    type: str
    required: bool
    default: str | None


Lacking: TypeAlias = Iterator[tuple[str, list[Column]]]


def create(connection: sqlite3.Connection) -> None:
    """Make the tables of a new ledger."""
    statement = ""
    for line in files("barnraise.ledger").joinpath("schema.sql").read_text("utf-8").splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


def complete(connection: sqlite3.Connection) -> None:
    """Add missing tables, and missing columns, each row with its default."""
    for statement in _absent(connection):
        connection.execute(statement)
    for table, columns in _lacking(connection):
        for column in columns:
            required = "NOT NULL " if column.required else ""
            connection.execute(
                f"ALTER TABLE {table} ADD COLUMN {column.name} {column.type} {required}DEFAULT {column.default}"
            )


def imagine(connection: sqlite3.Connection) -> None:
    """Let this connection, which changes nothing, read as if missing tables (empty) and columns existed."""
    for statement in _absent(connection):
        connection.execute(statement.replace("CREATE TABLE", "CREATE TEMP TABLE", 1))
    for table, columns in _lacking(connection):
        values = ", ".join(f"{column.default} AS {column.name}" for column in columns)
        connection.execute(f"CREATE TEMP VIEW {table} AS SELECT *, {values} FROM main.{table}")


def columns_of(table: str) -> list[Column]:
    """Return the columns of a table, in their order."""
    return _tables()[table]


@cache
def defaults_of(table: str) -> Mapping[str, Any]:
    """Return the values of those of its columns that have a default."""
    with closing(sqlite3.connect(":memory:")) as connection:
        given = {column.name: column.default for column in columns_of(table) if column.default is not None}
        return {name: connection.execute(f"SELECT {default}").fetchone()[0] for name, default in given.items()}


def _absent(connection: sqlite3.Connection) -> list[str]:
    """Return the statements that make the missing tables of a ledger."""
    there = {name for (name,) in map(tuple, connection.execute("SELECT name FROM main.sqlite_master"))}
    return [statement for table, statement in _statements().items() if table not in there] if "meta" in there else []


def _lacking(connection: sqlite3.Connection) -> Lacking:
    """Return the tables of `connection` with the columns that they lack."""
    for table, columns in _tables().items():
        there = {column.name for column in _columns(connection, table)}
        missing = [column for column in columns if column.name not in there and column.default is not None]
        if there and missing:
            yield table, missing


@cache
def _statements() -> Mapping[str, str]:
    with closing(sqlite3.connect(":memory:")) as connection:
        create(connection)
        return dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))


@cache
def _tables() -> Mapping[str, list[Column]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        create(connection)
        return {name: _columns(connection, name) for name in _statements()}


def _columns(connection: sqlite3.Connection, table: str) -> list[Column]:
    rows = connection.execute(f"PRAGMA main.table_info({table})")
    return [Column(name, kind, bool(required), default) for _, name, kind, required, default, _ in map(tuple, rows)]
