"""Conversion of decisions to rows of SQLite and back, and their running hash.

The mapping follows from the structs: a field is the column of the same name, text and numbers unchanged, everything
else as JSON, and NaN as NULL. The fields of a group (`decisions.Columns`) are columns each. One decision is special:
`VersionMade` fills in the `made_` half of the row that its `VersionClosed` began.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import typing
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from types import UnionType
from typing import Any, ClassVar, TypeAlias

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import CorruptionError
from barnraise.core.types import NodeProfile
from barnraise.ledger.decisions import (
    AnyDecision,
    Assigned,
    Columns,
    Decision,
    Judged,
    NodeChanged,
    Noted,
    VersionClosed,
    VersionMade,
)
from barnraise.ledger.notes import detail_of, note_of

Row: TypeAlias = tuple[Any, ...]

_PLAIN = (str, int, float, bool)


class RowFormat:
    """The form of one kind of decision in its table: SQL statements and conversions."""

    def __init__(self, decision: type[Decision], *, completes: str | None = None) -> None:
        self.decision, self.table = decision, decision.table
        self._groups = _groups(decision)
        fields = fields_of(decision)
        prefix = "made_" if completes else ""
        columns = [f"{prefix}time" if field.name == "time" else field.name for field in fields]
        self.id_column = f"{prefix}id"
        self.time_column = f"{prefix}time"
        self.columns = [self.id_column, f"{prefix}epoch", *columns]
        self._key = self.columns.index(completes) if completes else None
        self._encode: list[tuple[int, Callable[[Any], Any]]] = []
        self._decode: list[tuple[int, Callable[[Any], Any]]] = []
        self._reals: list[int] = []
        for position, field in enumerate(fields):
            if field.type is float:
                self._reals.append(position)
            elif isinstance(field.type, type) and issubclass(field.type, StrEnum):
                self._decode.append((position, field.type))
            elif not _is_plain(field.type):
                self._encode.append((position, _json_to_column))
                self._decode.append((position, _json_from_column(field.type)))
        self.write = self._update(completes) if completes else self._insert()
        self.read = (
            f"SELECT {self.id_column}, {', '.join(columns)} FROM {self.table} "
            f"WHERE {self.id_column} > ? ORDER BY {self.id_column}"
        )

    def _insert(self) -> str:
        marks = ", ".join("?" * len(self.columns))
        return f"INSERT INTO {self.table} ({', '.join(self.columns)}) VALUES ({marks})"

    def _update(self, key: str) -> str:
        values = ", ".join(f"{column} = ?" for column in self.columns if column != key)
        return f"UPDATE {self.table} SET {values} WHERE {key} = ? AND {self.id_column} IS NULL"

    def to_row(self, row_id: int, epoch: int, decision: Decision) -> Row:
        """Return the parameters of `write`."""
        return self.written(self.to_columns(row_id, epoch, decision))

    def to_columns(self, row_id: int, epoch: int, decision: Decision) -> Sequence[Any]:
        """Return the values of `columns`."""
        values: list[Any] = [row_id, epoch, *msgspec.structs.astuple(decision)]
        for place, _ in reversed(self._groups):
            values[place + 2 : place + 3] = msgspec.structs.astuple(values[place + 2])
        for position, encode in self._encode:
            values[position + 2] = encode(values[position + 2])
        return values

    def written(self, columns: Sequence[Any]) -> Row:
        """Return the parameters of `write` for a row with these `columns`, as stored in the table."""
        values = list(columns)
        if self._key is not None:
            values.append(values.pop(self._key))
        return tuple(values)

    def from_row(self, row: Row) -> AnyDecision:
        """Return the decision in a row of `read`.

        Raises CorruptionError for values that do not fit its fields.
        """
        values = list(row[1:])
        try:
            for position, decode in self._decode:
                values[position] = decode(values[position])
        except MALFORMED as error:
            raise CorruptionError(f"row {row[0]} of the ledger's table {self.table} is damaged: {error}") from error
        for position in self._reals:
            if values[position] is None:
                values[position] = math.nan
        for place, group in self._groups:
            stop = place + len(group.__struct_fields__)
            values[place:stop] = [group(*values[place:stop])]
        return typing.cast(AnyDecision, self.decision(*values))


class NoteFormat(RowFormat):
    """The form of a note's row, which has its kind, and its fields as JSON."""

    def __init__(self) -> None:
        super().__init__(_NoteRow)
        self.decision = Noted

    def to_columns(self, row_id: int, epoch: int, decision: Decision) -> Sequence[Any]:
        assert isinstance(decision, Noted)
        detail = _json_to_column(detail_of(decision.note))
        return row_id, epoch, decision.time, decision.note.kind, decision.node, detail

    def from_row(self, row: Row) -> AnyDecision:
        row_id, time, kind, node, detail = row
        try:
            note = note_of(kind, _DETAIL.decode(detail))
        except MALFORMED as error:
            raise CorruptionError(f"row {row_id} of the ledger's table {self.table} is damaged: {error}") from error
        return Noted(_float_from_column(time), note, node)


class _NoteRow(Decision, frozen=True, gc=False):
    """The columns of a note."""

    table: ClassVar[str] = Noted.table
    kind: str
    node: str
    detail: dict[str, Any]


_DETAIL = msgspec.json.Decoder(dict[str, Any])
_PROFILE = msgspec.json.Decoder(NodeProfile)


def fields_of(decision: type[Decision]) -> list[msgspec.structs.FieldInfo]:
    """Return the fields of its columns, with those of its groups in their place."""
    groups = dict(_groups(decision))
    found: list[msgspec.structs.FieldInfo] = []
    for place, field in enumerate(msgspec.structs.fields(decision)):
        found += msgspec.structs.fields(groups[place]) if place in groups else [field]
    return found


def flat(decision: Decision) -> dict[str, Any]:
    """Return the fields of a decision by the names of its columns, for JSON."""
    told: dict[str, Any] = msgspec.to_builtins(decision)
    for place, _ in _groups(type(decision)):
        told |= told.pop(decision.__struct_fields__[place])
    return told


def _groups(decision: type[Decision]) -> list[tuple[int, type[Columns]]]:
    """Return the places of its fields that are groups."""
    fields = enumerate(msgspec.structs.fields(decision))
    return [(n, one.type) for n, one in fields if isinstance(one.type, type) and issubclass(one.type, Columns)]


def _is_plain(hint: Any) -> bool:
    """Return whether SQLite stores its values directly, None apart."""
    if isinstance(hint, UnionType):
        return all(_is_plain(part) for part in typing.get_args(hint) if part is not type(None))
    return hint in _PLAIN or typing.get_origin(hint) is typing.Literal


def _float_from_column(value: float | None) -> float:
    return math.nan if value is None else value


def _json_to_column(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _json_from_column(hint: Any) -> Callable[[str | None], Any]:
    decode = _claims if hint == NodeProfile | None else msgspec.json.Decoder(hint).decode
    return lambda text: None if text is None else decode(text)


def _claims(text: str) -> NodeProfile:
    """Return a worker's claims.

    Those that its type does not allow (any more) are dropped: they stop no replay.
    """
    with contextlib.suppress(msgspec.ValidationError):
        return _PROFILE.decode(text)  # much quicker than field by field
    claimed = msgspec.json.decode(text, type=dict[str, Any])
    kept: dict[str, Any] = {}
    for field in msgspec.structs.fields(NodeProfile):
        with contextlib.suppress(KeyError, msgspec.ValidationError):
            kept[field.name] = msgspec.convert(claimed[field.name], field.type)
    return NodeProfile(**kept)


FORMATS: dict[type[Decision], RowFormat] = {
    NodeChanged: RowFormat(NodeChanged),
    Assigned: RowFormat(Assigned),
    Judged: RowFormat(Judged),
    VersionClosed: RowFormat(VersionClosed),
    VersionMade: RowFormat(VersionMade, completes="version"),  # after VersionClosed, since a batch may hold both
    Noted: NoteFormat(),
}


class LedgerHash:
    """The hash of a sequence of decisions, independent of where it is kept: BLAKE2b over their MessagePack.

    Equal sequences have equal hashes: a simulation compares its runs by this, without a database. Times count (the
    simulator's are virtual), ids and epochs do not. SQLite keeps neither the sign of zero nor that of NaN, so the hash
    of a sequence with -0.0 changes when it is stored.

    >>> from barnraise.ledger.notes import Continued, Paused
    >>> def hash_of(*notes):
    ...     return LedgerHash(Noted(0.5, note) for note in notes).hexdigest()
    >>> why = Paused("1 live node")
    >>> hash_of(why, Continued()) == hash_of(why, Continued()) != hash_of(Continued(), why)
    True
    """

    def __init__(self, decisions: Iterable[Decision] = ()) -> None:
        self._hash = hashlib.blake2b(digest_size=32)
        self._encode = msgspec.msgpack.Encoder().encode
        for decision in decisions:
            self.update(decision)

    def update(self, decision: Decision) -> None:
        """Add one decision to the hash.

        Field names are in its encoding, so that no two kinds of decisions look alike.
        """
        self._hash.update(self._encode(decision))

    def hexdigest(self) -> str:
        """Return 64 hexadecimal digits; more decisions may follow."""
        return self._hash.hexdigest()
