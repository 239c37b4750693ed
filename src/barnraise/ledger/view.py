"""Read-only views of the ledger, for status, report, dashboard and studies."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

import msgspec

from barnraise.core.errors import CorruptionError, RunDirectoryError
from barnraise.core.types import ANSWERS
from barnraise.ledger import chain, schema
from barnraise.ledger.cursor import Cursor, mark, newest_id
from barnraise.ledger.decisions import UPDATES, AnyDecision, Decision, NodeChanged, Noted
from barnraise.ledger.disk import storage_errors
from barnraise.ledger.note import Note
from barnraise.ledger.notes import COPY_CAME_FIRST, FIGURES, Evaluated, Released, SomeNote, kind_of
from barnraise.ledger.outcomes import (
    AssignmentRow,
    LookedAt,
    LossPoint,
    NodeTotals,
    RunTotals,
    VersionRow,
)
from barnraise.ledger.rows import FORMATS, RowFormat

_TIMES = " UNION ALL ".join(
    f"SELECT epoch, min(time) AS first, max(time) AS last FROM {table} GROUP BY epoch"
    for table in sorted({form.table for form in FORMATS.values()})
)

_OUTCOMES = (
    "WITH voided AS (SELECT json_extract(detail, '$.assignment') AS assignment, json_extract(detail, '$.version') AS "
    "version, json_extract(detail, '$.reason') AS why, CASE json_extract(detail, '$.judged') WHEN 1 THEN 'refused' "
    "ELSE 'discarded' END AS became FROM events WHERE kind = 'voided'), "
    "outcomes AS (SELECT contributions.*, coalesce(why, reason) AS because, CASE WHEN became IS NOT NULL THEN became "
    f"WHEN verdict = 'accepted' AND (digest = '' OR result NOT IN {UPDATES}) THEN 'found' "
    "WHEN verdict = 'accepted' AND EXISTS (SELECT 1 FROM events WHERE kind = 'left_over') "
    "AND assignment NOT IN (SELECT value FROM versions, json_each(versions.contributions)) "
    "THEN 'discarded' ELSE verdict END AS outcome "
    "FROM contributions LEFT JOIN (SELECT assignment, why, became FROM voided) USING (assignment)) "
)
"""Contributions with their outcomes: accepted ones that could not be used were refused, or discarded with their
version; those in no version at the end were discarded. An accepted result that is no update is a finding."""

_NEWS = f" AND kind NOT IN ({', '.join(map(repr, FIGURES))})"

_END = (
    "(SELECT coalesce(min(time), 9e999) FROM (SELECT time FROM versions WHERE reason = 'last' "
    "UNION ALL SELECT time FROM events WHERE kind = 'left_over'))"
)
"""When the run took its last contribution: assignments released from then on are not lost, but not needed."""


SomeDecision = TypeVar("SomeDecision", bound=Decision)


class LedgerView:
    """A read-only connection, usable during and after the controller's life, by one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Raise RunDirectoryError when there is no ledger at `path`, or one of another version of barnraise."""
        self.path = path
        if not path.is_file():
            raise RunDirectoryError(f"there is no ledger at {path}: give the folder of a run that was started")
        self._connection = connect_read_only(path)
        try:
            meta = read_meta(self._connection, path)
        except BaseException:
            self._connection.close()
            raise
        self.run: str = meta["run"]

    def close(self) -> None:
        """Close the connection to the ledger."""
        self._connection.close()

    def __enter__(self) -> LedgerView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def epoch(self) -> int:
        """Return the newest controller's epoch."""
        return int(read_meta(self._connection, self.path)["epoch"])

    @property
    def head(self) -> chain.Head:
        """Return the newest head of the chain over the ledger's rows; the beginning in a ledger from before chains."""
        with storage_errors(self.path, "read"):
            return chain.newest(self._connection)

    @property
    def end(self) -> float:
        """Return the time of the newest decision on the run's clock, 0 when there is none."""
        rows = self._rows(f"SELECT coalesce(max(last), 0.0) AS last FROM ({_TIMES})")
        return float(rows[0]["last"])

    @property
    def rows(self) -> int:
        """Return how many rows are committed."""
        return newest_id(self._connection, self.path)

    def tokens(self, until: int) -> int:
        """Return the tokens of the contributions that were accepted, and not voided, in the rows up to an id."""
        voided = "SELECT json_extract(detail, '$.assignment') FROM events WHERE kind = 'voided'"
        counted = f"id <= ? AND verdict = 'accepted' AND digest != '' AND assignment NOT IN ({voided})"
        query = f"SELECT coalesce(sum(tokens), 0) FROM contributions WHERE {counted}"
        with storage_errors(self.path, "read"):
            return int(self._connection.execute(query, (until,)).fetchone()[0])

    def first_row(self, since: float) -> int:
        """Return the id of the first row at `since` on the run's clock or later; without one, that after the last."""
        found = " UNION ALL ".join(
            f"SELECT min({form.id_column}) AS first, max({form.id_column}) AS last, {form.time_column} >= ? AS late "
            f"FROM {form.table} WHERE {form.id_column} IS NOT NULL GROUP BY late"
            for form in FORMATS.values()
        )
        with storage_errors(self.path, "read"):
            rows = [tuple(row) for row in self._connection.execute(found, (since,) * len(FORMATS))]
        late = [first for first, _, is_late in rows if is_late]
        return int(min(late)) if late else 1 + max((last for _, last, _ in rows), default=0)

    def replay(self, after_id: int = 0) -> Iterator[tuple[int, AnyDecision]]:
        """Yield all decisions with a larger id than `after_id`, in order, as of the first `next`.

        Raises CorruptionError when a row is missing or damaged.
        """
        return replay(self.path, after_id)

    def cursor(self, kinds: Iterable[type[Decision | Note]], after_id: int = 0) -> Cursor:
        """Return a cursor that reads rows of these kinds after the row `after_id`, each time the new ones."""
        return Cursor(self._connection, self.path, kinds, after_id)

    def mark(self, row_id: int) -> str:
        """Return a digest that tells the rows up to this one from those of any other ledger (`cursor.mark`)."""
        return mark(self._connection, self.path, row_id)

    def totals(self) -> RunTotals:
        """Return the totals of the run so far."""
        row = self._rows(
            f"{_OUTCOMES} SELECT "
            "(SELECT coalesce(max(version), -1) FROM versions WHERE made_id IS NOT NULL) AS version, "
            "count(*) FILTER (WHERE outcome = 'accepted') AS accepted, "
            "count(*) FILTER (WHERE outcome = 'refused') AS refused, "
            "count(*) FILTER (WHERE outcome = 'discarded') AS discarded, "
            "count(*) FILTER (WHERE outcome = 'found') AS found, "
            "(SELECT count(*) FROM events WHERE kind = 'audited') AS anew, "
            "(SELECT count(*) FROM events WHERE kind = 'scored') AS scored, "
            "(SELECT count(*) FROM events WHERE kind = 'unaudited') AS lapsed, "
            f"count(*) FILTER (WHERE outcome = 'found' AND result IN {tuple(sorted(ANSWERS))}) AS answered, "
            "count(*) FILTER (WHERE outcome = 'accepted' AND signature != '') AS signed, "
            "coalesce(sum(tokens) FILTER (WHERE outcome = 'accepted'), 0) AS tokens, "
            "coalesce(sum(num_bytes), 0) AS num_bytes, "
            "count(DISTINCT node) FILTER (WHERE outcome = 'accepted') AS contributors, "
            f"(SELECT count(DISTINCT epoch) FROM ({_TIMES})) AS epochs, "
            f"(SELECT coalesce(sum(lasted), 0.0) FROM (SELECT max(last) - min(first) AS lasted FROM ({_TIMES}) "
            "GROUP BY epoch)) AS seconds FROM outcomes"
        )[0]
        looked_at = {name: row.pop(name) for name in LookedAt.__struct_fields__}
        return msgspec.convert(row | {"looked_at": looked_at}, RunTotals)

    def nodes(self) -> list[NodeTotals]:
        """Return every node that was ever enrolled, in the order in which they first appeared."""
        rows = self._rows(
            f"{_OUTCOMES} "
            "SELECT node, change, reason, time, coalesce(assigned, 0) AS assigned, coalesce(accepted, 0) AS accepted, "
            "coalesce(refused, 0) AS refused, coalesce(discarded, 0) + coalesce(copied, 0) AS discarded, "
            "coalesce(tokens, 0) AS tokens, "
            "coalesce(num_bytes, 0) AS num_bytes, coalesce(seconds, 0.0) AS seconds, "
            "coalesce(mean_staleness, 0.0) AS mean_staleness, coalesce(max_staleness, 0) AS max_staleness, "
            "coalesce(found, 0) AS found, coalesce(lost, 0) AS lost, coalesce(device, '') AS device, "
            "coalesce(role, '') AS role "
            "FROM (SELECT node, change, reason, time, max(id) FROM nodes GROUP BY node) "
            "JOIN (SELECT node, min(id) AS first FROM nodes GROUP BY node) USING (node) "
            "LEFT JOIN (SELECT node, json_extract(profile, '$.device') AS device, max(id) FROM nodes "
            "WHERE profile IS NOT NULL GROUP BY node) USING (node) "
            "LEFT JOIN (SELECT node, role, max(id) FROM nodes WHERE change = 'enrolled' GROUP BY node) USING (node) "
            "LEFT JOIN (SELECT node, count(*) AS assigned FROM assignments GROUP BY node) USING (node) "
            "LEFT JOIN (SELECT node, sum(CASE WHEN copied THEN 0 WHEN kind = 'released' THEN 1 ELSE -1 END) AS lost, "
            "sum(copied) AS copied FROM (SELECT node, kind, "
            f"coalesce(json_extract(detail, '$.reason'), '') = '{COPY_CAME_FIRST}' AS copied FROM events "
            f"WHERE kind IN ('released', 'reopened') AND time < {_END}) GROUP BY node) USING (node) "
            "LEFT JOIN (SELECT node, count(*) FILTER (WHERE outcome = 'accepted') AS accepted, "
            "count(*) FILTER (WHERE outcome = 'refused') AS refused, "
            "count(*) FILTER (WHERE outcome = 'discarded') AS discarded, "
            "count(*) FILTER (WHERE outcome = 'found') AS found, "
            "sum(tokens) FILTER (WHERE outcome = 'accepted') AS tokens, sum(num_bytes) AS num_bytes, "
            "sum(seconds) FILTER (WHERE outcome <> 'found') AS seconds, "
            "avg(staleness) FILTER (WHERE outcome <> 'found') AS mean_staleness, max(staleness) AS max_staleness "
            "FROM outcomes GROUP BY node) USING (node) ORDER BY first"
        )
        return msgspec.convert([row | {"outcomes": row} for row in rows], list[NodeTotals])

    def refusals(self) -> dict[str, int]:
        """Return how many contributions were refused, by reason, the most frequent first."""
        rows = self._rows(
            f"{_OUTCOMES} SELECT because AS reason, count(*) AS num FROM outcomes WHERE outcome = 'refused' "
            "GROUP BY because ORDER BY num DESC, because"
        )
        return {row["reason"]: row["num"] for row in rows}

    def versions(self) -> list[VersionRow]:
        """Return all versions, the oldest first."""
        rows = self._rows(
            f"{_OUTCOMES} SELECT version, time, num_nodes, json_array_length(contributions) - coalesce(num, 0) AS "
            "num_contributions, tokens - coalesce(lost, 0) AS tokens, reason, made_time, digest, delta_bytes "
            "FROM versions LEFT JOIN (SELECT voided.version, count(*) AS num, sum(contributions.tokens) AS lost "
            "FROM voided JOIN contributions USING (assignment) JOIN versions AS its ON its.version = voided.version "
            "WHERE assignment IN (SELECT value FROM json_each(its.contributions)) GROUP BY voided.version) "
            "USING (version) ORDER BY version"
        )
        return msgspec.convert(rows, list[VersionRow])

    def assignments(self) -> list[AssignmentRow]:
        """Return all assignments and their outcomes, in the order in which they were made."""
        released = {note.assignment: (time, note.reason) for time, note in self.events(Released)}
        end = self._rows(f"SELECT {_END} AS time")[0]["time"]
        rows = self._rows(
            f"{_OUTCOMES} SELECT assignment, assignments.node, assignments.time AS start, outcomes.time AS stop, "
            "coalesce(outcome, 'open') AS outcome, assignments.tokens FROM assignments LEFT JOIN outcomes "
            "USING (assignment) ORDER BY assignments.id"
        )
        found = msgspec.convert(rows, list[AssignmentRow])
        for place, row in enumerate(found):
            if row.outcome == "open" and row.assignment in released:
                stop, reason = released[row.assignment]
                outcome: Literal["discarded", "lost", "open"] = "lost" if stop < end else "open"
                if reason == COPY_CAME_FIRST:
                    outcome = "discarded"
                found[place] = msgspec.structs.replace(row, stop=stop, outcome=outcome)
        return found

    def losses(self) -> list[LossPoint]:
        """Return the loss of every evaluated version, the oldest first, without NaN."""
        places, tokens = {0: (0, 0.0)}, 0
        for row in self.versions():
            tokens += row.tokens
            places[row.version] = (tokens, row.time if row.made_time is None else row.made_time)
        told = ((note, note.loss) for _, note in self.events(Evaluated))
        return [LossPoint(n.version, *places[n.version], loss, n.owners) for n, loss in told if loss is not None]

    def news(self, after_id: int = 0) -> list[tuple[int, NodeChanged | Noted]]:
        """Return changes of nodes, and all notes but figures, with a larger id than `after_id`, in order."""
        found: list[tuple[int, NodeChanged | Noted]] = []
        with storage_errors(self.path, "read"):
            for form, also in ((FORMATS[NodeChanged], ""), (FORMATS[Noted], _NEWS)):
                for row in self._connection.execute(form.read.replace(" ORDER", f"{also} ORDER"), (after_id,)):
                    decision = form.from_row(tuple(row))
                    assert isinstance(decision, NodeChanged | Noted)
                    found.append((row[0], decision))
        return sorted(found, key=lambda item: item[0])

    def events(self, kind: type[SomeNote]) -> list[tuple[float, SomeNote]]:
        """Return all notes of a kind with their times, the oldest first."""
        found = (noted for _, noted in self.find(Noted, "kind = ?", kind_of(kind)))
        return [(noted.time, noted.note) for noted in found if isinstance(noted.note, kind)]

    def newest(self, kind: type[SomeNote]) -> SomeNote | None:
        """Return the last note of a kind."""
        found = self.find(Noted, "kind = ?", kind_of(kind), last=1)
        return found[0][1].note if found and isinstance(found[0][1].note, kind) else None

    def names(self) -> list[str]:
        """Return the nodes' names, in the order in which they first appeared."""
        return [row["node"] for row in self._rows("SELECT node FROM nodes GROUP BY node ORDER BY min(id)")]

    def find(
        self, decision: type[SomeDecision], where: str, *values: object, last: int = 0
    ) -> list[tuple[int, SomeDecision]]:
        """Return the decisions of one kind, with ids, whose rows fulfil an SQL condition; the `last` few, if any."""
        form = FORMATS[decision]
        query = form.read.replace("WHERE", f"WHERE ({where}) AND") + (f" DESC LIMIT {last:d}" if last else "")
        with storage_errors(self.path, "read"):
            rows = sorted(map(tuple, self._connection.execute(query, (*values, 0))))
        return [(row[0], found) for row in rows if isinstance(found := form.from_row(row), decision)]

    def _rows(self, query: str) -> list[dict[str, Any]]:
        with storage_errors(self.path, "read"):
            return [dict(row) for row in self._connection.execute(query)]


def replay(path: Path, after_id: int = 0) -> Iterator[tuple[int, AnyDecision]]:
    """Yield decisions as `LedgerView.replay`, over a connection of its own, so that commits may continue."""
    with storage_errors(path, "read"), closing(connect_read_only(path)) as connection:
        connection.execute("BEGIN")
        rows = heapq.merge(*(_read(connection, form, after_id) for form in FORMATS.values()))  # ids are unique
        for expected, (row_id, decision) in enumerate(rows, after_id + 1):
            if row_id != expected:
                raise CorruptionError(f"{path} is damaged: row {expected} is missing; restore it from a copy")
            yield row_id, decision


def read_meta(connection: sqlite3.Connection, path: Path) -> dict[str, Any]:
    """Return the `meta` table; RunDirectoryError when it is missing or of another schema."""
    with storage_errors(path, "read"):
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
            raise RunDirectoryError(f"{path} is not the ledger of a run: give the folder of a run that was started")
        meta: dict[str, Any] = dict(map(tuple, connection.execute("SELECT key, value FROM meta")))
    if meta.get("schema") not in schema.READABLE:
        raise RunDirectoryError(
            f"{path} has ledger schema {meta.get('schema')}, this barnraise reads {schema.READABLE[0]} "
            f"to {schema.VERSION}: use the barnraise that wrote it last"
        )
    return meta


def connect_read_only(path: Path) -> sqlite3.Connection:
    """Open a connection that changes nothing, to a ledger that another one may write to."""
    uri = path.absolute().as_uri()
    with storage_errors(path, "read"):
        try:
            return _connect(f"{uri}?mode=ro")
        except sqlite3.OperationalError:
            if path.with_name(path.name + "-wal").exists():
                raise
            return _connect(f"{uri}?immutable=1")  # a read-only folder without a writer: nothing can change


def connect_still(path: Path) -> sqlite3.Connection:
    """Open a connection to a ledger without a writer, which leaves no file beside it."""
    with storage_errors(path, "read"):
        return _connect(f"{path.absolute().as_uri()}?immutable=1")


def _connect(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10.0)
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # the file is opened only now
        schema.imagine(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _read(connection: sqlite3.Connection, form: RowFormat, after_id: int) -> Iterator[tuple[int, AnyDecision]]:
    cursor = connection.cursor()
    cursor.row_factory = None
    for row in cursor.execute(form.read, (after_id,)):
        yield row[0], form.from_row(row)
