"""The meta.json of a dataset folder: the form of its rows and their files, without torch or models.

A meta may come over the network. `Meta.decode` accepts only what fits the schema and its limits, whose names cannot
leave the folder, and whose sizes agree with each other.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import DataError
from barnraise.core.types import Count, Digest
from barnraise.data.columns import MAX_CONTEXT, MOST_COLUMNS, TEXT, RowColumn, TokenType, stored_type
from barnraise.data.lengths import MOST_LENGTHS

META, HELD_OUT = "meta.json", "held_out.bin"
MIB = 1024 * 1024
MAX_SHARD_BYTES = 64 * MIB
MAX_META_BYTES = 16 * MIB
MAX_VOCAB = 1 << 24

_NAME = re.compile(r"[a-z0-9_-][a-z0-9_.-]{0,63}")

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=MAX_VOCAB)]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Length = Annotated[int, msgspec.Meta(ge=2, le=MAX_CONTEXT)]


class Targets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Targets of training: only tokens strictly after an `after` token, up to and including the next `until` token."""

    after: TokenId
    until: TokenId


class Format(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The form of the rows.

    `kind` and `tokenizer` name their source ("text" and "bytes", "sat" and "sat"). `context` is the tokens of a row, or
    of the longest ones where a shard has its own length. A row has the column `tokens`, unless `columns` says others.
    The shards of `ordered` rows are trained on one after the other.
    """

    kind: Word
    tokenizer: Word
    context: Annotated[int, msgspec.Meta(ge=1, le=MAX_CONTEXT)]
    vocab_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_VOCAB)]
    pad_id: TokenId | None = None
    bos_id: TokenId | None = None
    eos_id: TokenId | None = None
    targets: Targets | None = None
    mask_id: TokenId | UnsetType = UNSET
    columns: Annotated[tuple[RowColumn, ...], msgspec.Meta(min_length=1, max_length=MOST_COLUMNS)] | UnsetType = UNSET
    ordered: bool | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.columns is UNSET and self.context < 2:
            raise DataError(f"context is {self.context}, but a row of text has at least 2 tokens")
        names = [column.name for column in self.fields]
        if len(set(names)) < len(names):
            raise DataError(f"two columns have the same name; the names are {', '.join(names)}")
        if self.row_bytes(self.context) > MAX_SHARD_BYTES:
            size = self.row_bytes(self.context)
            raise DataError(f"a row has {size} bytes, but a file, which holds whole rows, may have {MAX_SHARD_BYTES}")
        ids = [self.pad_id, self.bos_id, self.eos_id]
        if self.targets is not None:
            ids += [self.targets.after, self.targets.until]
            if self.targets.after == self.targets.until:
                raise DataError(f"targets begin and end with the same token {self.targets.after}; use two")
        for token in (*ids, None if self.mask_id is UNSET else self.mask_id):
            if token is not None and token >= self.vocab_size:
                raise DataError(f"special token {token} is outside the vocabulary of {self.vocab_size}")

    @property
    def fields(self) -> tuple[RowColumn, ...]:
        """Return the columns of a row, those of text included."""
        return TEXT if self.columns is UNSET else self.columns

    @property
    def dtype_name(self) -> TokenType:
        """The type of stored token ids: the smaller one that holds the vocabulary."""
        return "uint16" if self.vocab_size <= 1 << 16 else "uint32"

    def stored_type(self, length: int) -> np.dtype[Any]:
        """Return the type of a row of `length` in a file."""
        return stored_type(self.fields, length, self.dtype_name)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Return the tokens of the rows to train on, each length once, the shortest first."""
        return (self.context,)

    def row_bytes(self, length: int) -> int:
        """Return the bytes of a row of `length` in a file."""
        return sum(column.num_bytes(length, self.dtype_name) for column in self.fields)

    @property
    def token_bytes(self) -> int:
        """Return the bytes of a row in a file for each of its tokens, rounded up."""
        return -(-self.row_bytes(self.context) // self.context)

    def check(self) -> None:
        """Raise DataError unless every field is within its limits (a constructor does not check them all)."""
        try:
            msgspec.convert(msgspec.to_builtins(self), type(self))
        except msgspec.ValidationError as error:
            raise DataError(f"a dataset of this form cannot be made: {error}") from error


class FileInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of the dataset; `rows` is 0 for files without rows.

    `length` is the tokens of a row in a shard that does not have the format's context.
    """

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    rows: Count = 0
    bytes: Count
    sha256: Digest
    length: Length | UnsetType = UNSET

    def __post_init__(self) -> None:
        check_name(self.name)


class Meta(Format, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """meta.json: the form of the rows, and the files that hold them."""

    dtype: TokenType
    shards: Annotated[tuple[FileInfo, ...], msgspec.Meta(max_length=100_000)]  # none: rows stay with their nodes
    held_out: FileInfo
    files: Annotated[tuple[FileInfo, ...], msgspec.Meta(max_length=64)] = ()  # those of the tokenizer
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dtype != self.dtype_name:
            raise DataError(f"dtype is {self.dtype}, but a vocabulary of {self.vocab_size} is {self.dtype_name}")
        for info in (self.held_out, *self.files):
            if info.length is not UNSET:
                raise DataError(f"{info.name} has a row length of its own, but only token shards may")
        for info in self.row_files():
            length = self.row_length(info)
            if length > self.context:
                raise DataError(f"{info.name} has rows of {length} tokens, but the longest are of {self.context}")
            least = 1 if self.shards else 0
            if info.rows < least or info.bytes != info.rows * self.row_bytes(length):
                raise DataError(
                    f"{info.name} has {info.bytes} bytes for {info.rows} rows of {self.row_bytes(length)} bytes each"
                )
        if len(self.lengths) > MOST_LENGTHS:
            raise DataError(f"rows have {len(self.lengths)} lengths, but may have {MOST_LENGTHS}")
        for info in (*self.shards, *self.files):
            if info.bytes > MAX_SHARD_BYTES:
                raise DataError(f"{info.name} has {info.bytes} bytes, but a file may have {MAX_SHARD_BYTES}")
        names = [info.name for info in self.contents()]
        if len(set(names)) < len(names) or META in names:
            raise DataError("two files have the same name")

    @classmethod
    def of(cls, form: Format, *, shards: list[FileInfo], held_out: FileInfo, files: list[FileInfo]) -> Meta:
        """Return the meta of rows of `form` in these files; DataError when they do not fit together."""
        fields = {name: getattr(form, name) for name in Format.__struct_fields__}
        meta = cls(**fields, dtype=form.dtype_name, shards=tuple(shards), held_out=held_out, files=tuple(files))
        meta.check()
        return meta

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(sorted({self.row_length(info) for info in self.shards})) or (self.context,)

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens in all training rows."""
        return sum(info.rows * self.row_length(info) for info in self.shards)

    def row_length(self, info: FileInfo) -> int:
        """Return the tokens of each row in one of the `row_files`."""
        return self.context if info.length is UNSET else info.length

    def contents(self) -> list[FileInfo]:
        """Return every file but meta.json: the tokenizer's, the held-out rows, the shards."""
        return [*self.files, self.held_out, *self.shards]

    def row_files(self) -> list[FileInfo]:
        """Return the files that hold rows: the shards in order, and last the held-out rows."""
        return [*self.shards, self.held_out]

    def encode(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @classmethod
    def decode(cls, content: bytes, source: str = META) -> Meta:
        """Parse and check; DataError with `source` and the reason."""
        if len(content) > MAX_META_BYTES:
            raise DataError(f"{source} has {len(content)} bytes, but may have {MAX_META_BYTES}")
        try:
            return msgspec.json.decode(content, type=cls)
        except (DataError, *MALFORMED) as error:
            raise DataError(f"{source} is not a dataset's description: {error}; make the dataset again") from error

    @classmethod
    def read(cls, path: Path) -> Meta:
        """Read and `decode` a file; its size is checked before it is read."""
        if not path.is_file():
            raise DataError(f"{path.parent} is not a dataset: it has no {path.name}; make one with `barnraise data`")
        if path.stat().st_size > MAX_META_BYTES:
            raise DataError(f"{path} has {path.stat().st_size} bytes, but may have {MAX_META_BYTES}")
        return cls.decode(path.read_bytes(), str(path))


def check_name(name: str) -> str:
    """Return `name` if it is a plain file name that cannot leave its folder; DataError otherwise."""
    if not _NAME.fullmatch(name):
        raise DataError(f"file name {name[:80]!r} refused: use a-z, 0-9, '_', '-' and inner '.', at most 64 letters")
    return name
