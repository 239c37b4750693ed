"""The tables of a ledger, and what is done where one is from before a column was thought of.

`schema.sql` is all there is: a column that a table lacks has the default that is written there. A reader takes it from
there, and a controller that goes on with the run adds the column. So a column that is added needs no migration.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import cache
from importlib.resources import files
from typing import NamedTuple, TypeAlias


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
    """Add the columns that the tables lack, each row with its default."""
    for table, columns in _lacking(connection):
        for column in columns:
            required = "NOT NULL " if column.required else ""
            connection.execute(
                f"ALTER TABLE {table} ADD COLUMN {column.name} {column.type} {required}DEFAULT {column.default}"
            )


def imagine(connection: sqlite3.Connection) -> None:
    """Have this connection, which changes nothing, read the tables as if they had those columns."""
    for table, columns in _lacking(connection):
        values = ", ".join(f"{column.default} AS {column.name}" for column in columns)
        connection.execute(f"CREATE TEMP VIEW {table} AS SELECT *, {values} FROM main.{table}")


def _lacking(connection: sqlite3.Connection) -> Lacking:
    """The tables of `connection` with the columns that they lack."""
    for table, columns in _tables().items():
        there = {column.name for column in _columns(connection, table)}
        missing = [column for column in columns if column.name not in there and column.default is not None]
        if there and missing:
            yield table, missing


@cache
def _tables() -> Mapping[str, list[Column]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        create(connection)
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: _columns(connection, name) for name in names}


def _columns(connection: sqlite3.Connection, table: str) -> list[Column]:
    rows = connection.execute(f"PRAGMA main.table_info({table})")
    return [Column(name, kind, bool(required), default) for _, name, kind, required, default, _ in map(tuple, rows)]
