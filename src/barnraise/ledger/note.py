"""The form of a note: a struct whose name is its kind in the ledger."""

from __future__ import annotations

import re
from typing import ClassVar, TypeVar

import msgspec


def _kind(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Note(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag=_kind):
    """Base of all notes; `kind` names one in the ledger: `BufferSize` is buffer_size.

    `figures`: it recurs, and is not shown as news. `sentence` tells it to a reader, with its fields and {node} filled
    in; "": it is not told, or `account.chronicle` makes the sentence.
    """

    figures: ClassVar[bool] = False
    sentence: ClassVar[str] = ""

    @property
    def kind(self) -> str:
        return kind_of(type(self))


SomeNote = TypeVar("SomeNote", bound=Note)


def kind_of(note: type[Note]) -> str:
    """Return the ledger's name of notes of this type."""
    return str(note.__struct_config__.tag)
