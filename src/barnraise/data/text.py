"""Text datasets: files and folders, as bytes or through a tokenizer, packed into rows of `context` tokens.

Each file is a document; documents end with the tokenizer's end-of-text token and follow each other without padding (the
last, unfilled row is dropped). Rows may be of several lengths, which share the tokens evenly; held-out rows are of the
longest. A document with the same content as another is dropped, so none is on both sides of the split. Everything is
streamed: only the held-out part and one chunk are in memory.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET

from barnraise.core.errors import DataError
from barnraise.data import paths, shards, tokenizers
from barnraise.data.examples import Example
from barnraise.data.lengths import SHARD_BYTES, in_order
from barnraise.data.meta import MIB, Format, Meta
from barnraise.data.recognise import require_text
from barnraise.data.tokenizers import TokenIds, Tokenizer

_CHUNK = 4 * MIB  # a longer document is tokenized in chunks cut at line ends
_BATCH = 8 * MIB


@dataclass(frozen=True, slots=True)
class TextDocument:
    """Bytes start..stop-1 of a file."""

    path: Path
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


class TextChunk(NamedTuple):
    """A part of a document that is tokenized at once.

    `content` is at `offset` of the document's file; `last` ends the document.
    """

    document: TextDocument
    offset: int
    content: bytes
    last: bool


def build(
    folder: Path | str,
    files: Sequence[str | Path],
    *,
    tokenizer: str | Path = "bytes",
    context: int | Sequence[int] = 128,
    held_out: float = 0.05,
    seed: int = 0,
    root: Path | str = ".",
    shard_bytes: int = SHARD_BYTES,
    beside: Mapping[str, bytes] | None = None,
) -> Meta:
    """Make a dataset in `folder` of `files`: paths, folders (all but hidden files in them) and globs, `**` included.

    Relative ones start at `root`. `context` is the tokens of a row, or several ascending numbers. About the share
    `held_out` of the bytes is kept from training: whole documents where those come near the share, else the end of the
    longest one. The same files and seed give the same dataset. Raises DataError when nothing matches, a file cannot be
    read (or is not UTF-8, which a tokenizer needs), or the data does not fill a row of each length on its side;
    StorageError when the disk is full.
    """
    if not 0.0 < held_out < 1.0:
        raise DataError(f"held_out is {held_out}, but must be above 0 and below 1")
    lengths = in_order(context)
    longest = lengths[-1]
    coder = tokenizers.load(tokenizer)
    form = form_of(coder, lengths)
    documents = find(files, root=root, leave_out=Path(folder))
    train, held = split(documents, held_out, seed)
    held_rows = list(rows(held, coder, longest))
    if not held_rows:
        size = sum(document.size for document in held)
        raise DataError(
            f"the held-out part of {size} bytes (held_out: {held_out}) does not fill one row of {longest} tokens; "
            "give more data, a larger held_out or a smaller context"
        )
    return shards.write(
        folder,
        form,
        rows(train, coder, *lengths),
        np.concatenate(held_rows),
        lengths=lengths,
        files=coder.files() | dict(beside or {}),
        seed=seed,
        shard_bytes=shard_bytes,
    )


def build_of(
    folder: Path | str,
    training: Iterable[Example],
    held_out: Iterable[Example],
    *,
    tokenizer: str | Path = "bytes",
    context: int | Sequence[int] = 128,
    seed: int = 0,
    shard_bytes: int = SHARD_BYTES,
    beside: Mapping[str, bytes] | None = None,
) -> Meta:
    """Make a dataset in `folder` of examples that are text; each of them is a document. Otherwise as `build`."""
    coder, lengths = tokenizers.load(tokenizer), in_order(context)
    held_rows = list(cut(_example_tokens(held_out, coder), lengths[-1:]))
    if not held_rows:
        raise DataError(
            f"the held-out examples do not fill one row of {lengths[-1]} tokens; give more, or a smaller context"
        )
    return shards.write(
        folder,
        form_of(coder, lengths),
        cut(_example_tokens(training, coder), lengths),
        np.concatenate(held_rows),
        lengths=lengths,
        files=coder.files() | dict(beside or {}),
        seed=seed,
        shard_bytes=shard_bytes,
    )


def find(files: Sequence[str | Path], *, root: Path | str = ".", leave_out: Path | None = None) -> list[TextDocument]:
    """Find the documents that `files` name, each content once, in the order of their paths.

    DataError if there are none, or if a file is recognised as something else than text.
    """
    if not files:
        raise DataError("no files given; name at least one file, folder or glob")
    try:
        named = {path.resolve() for pattern in files for path in _match(str(pattern), Path(root))}
        if leave_out is not None:
            named = {path for path in named if not path.is_relative_to(leave_out.resolve())}
        documents = [TextDocument(path, 0, path.stat().st_size) for path in sorted(named)]
        require_text([document.path for document in documents if document.size])
        found = list(_distinct([document for document in documents if document.size]))
    except OSError as error:
        raise DataError(f"{error.filename} cannot be read ({error.strerror})") from error
    if not found:
        raise DataError(f"{', '.join(map(str, files))}: nothing but empty files; give files with text in them")
    return found


def split(
    documents: Sequence[TextDocument], held_out: float, seed: int
) -> tuple[list[TextDocument], list[TextDocument]]:
    """Return (train, held-out) documents, disjoint, with about the share `held_out` of the bytes in the latter.

    Whole documents are drawn at random while they fit. When that stays under half the share (a few long documents), the
    end of the longest one is taken instead, from a line's beginning on.
    """
    target = held_out * sum(document.size for document in documents)
    drawn: list[TextDocument] = []
    size = 0
    for document in random.Random(seed).sample(documents, len(documents)):
        if size < target and size + document.size <= 1.25 * target and len(drawn) + 1 < len(documents):
            drawn.append(document)
            size += document.size
    if size < 0.5 * target:
        longest = max(documents, key=lambda document: document.size)
        share = min(target, longest.size * max(0.5, held_out))
        cut = _line_start(longest.path, longest.stop - int(share), longest.stop)
        drawn = [replace(longest, start=cut)]
        kept = [replace(d, stop=cut) if d is longest else d for d in documents]
    else:
        chosen = set(drawn)
        kept = [document for document in documents if document not in chosen]
    return kept, sorted(drawn, key=lambda document: document.path)


def form_of(coder: Tokenizer, lengths: Sequence[int]) -> Format:
    """Return the form of rows of these lengths; DataError when a length cannot be."""
    form = Format(
        kind="text",
        tokenizer=coder.name,
        context=lengths[-1],
        vocab_size=coder.vocab_size,
        pad_id=coder.pad_id,
        bos_id=coder.bos_id,
        eos_id=coder.eos_id,
        mask_id=UNSET if coder.mask_id is None else coder.mask_id,
    )
    for length in lengths:
        msgspec.structs.replace(form, context=length).check()
    return form


def rows(documents: Iterable[TextDocument], tokenizer: Tokenizer, *lengths: int) -> Iterator[TokenIds]:
    """Pack the documents' tokens into arrays [any, one of `lengths`], and drop an incomplete last row."""
    return cut(_tokens(documents, tokenizer), lengths)


def cut(stream: Iterable[TokenIds], lengths: Sequence[int]) -> Iterator[TokenIds]:
    """Cut a stream of tokens into rows, arrays [any, one of `lengths`], and drop an incomplete last row.

    Each row begins where the one before it ends, and is of the length that has the fewest tokens so far.
    """
    rest: TokenIds = np.zeros(0, dtype=np.uint32)
    taken = [0] * len(lengths)  # tokens
    for tokens in stream:
        rest = np.concatenate([rest, tokens])
        starts: list[list[int]] = [[] for _ in lengths]
        place = 0
        while place + lengths[number := taken.index(min(taken))] <= len(rest):
            starts[number].append(place)
            taken[number] += lengths[number]
            place += lengths[number]
        for length, found in zip(lengths, starts, strict=True):
            if found:
                yield np.lib.stride_tricks.sliding_window_view(rest, length)[found]
        rest = rest[place:]


def _tokens(documents: Iterable[TextDocument], tokenizer: Tokenizer) -> Iterator[TokenIds]:
    end = np.array([tokenizer.eos_id], dtype=np.uint32)
    for batch in _batches(documents):
        try:
            encoded = list(tokenizer.encode_chunks([chunk.content for chunk in batch]))
        except UnicodeDecodeError as error:
            raise _not_text(batch) from error
        yield np.concatenate(
            [ids for chunk, own in zip(batch, encoded, strict=True) for ids in ([own, end] if chunk.last else [own])]
        )


def _example_tokens(examples: Iterable[Example], tokenizer: Tokenizer) -> Iterator[TokenIds]:
    """Yield the tokens of the examples, an end of text behind each."""
    end = np.array([tokenizer.eos_id], dtype=np.uint32)
    texts: list[bytes] = []
    size = 0
    for example in examples:
        texts.append((example.text or "").encode())
        size += len(texts[-1]) + 64
        if size >= _BATCH:
            yield np.concatenate([part for ids in tokenizer.encode_chunks(texts) for part in (ids, end)])
            texts, size = [], 0
    if texts:
        yield np.concatenate([part for ids in tokenizer.encode_chunks(texts) for part in (ids, end)])


def _batches(documents: Iterable[TextDocument]) -> Iterator[list[TextChunk]]:
    batch: list[TextChunk] = []
    size = 0
    for chunk in (chunk for document in documents for chunk in _chunks(document)):
        batch.append(chunk)
        size += len(chunk.content) + 64
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _chunks(document: TextDocument) -> Iterator[TextChunk]:
    """Yield chunks of at most `_CHUNK` bytes; each but the first begins with a line break if possible."""
    try:
        with document.path.open("rb") as file:
            file.seek(document.start)
            offset, content = document.start, b""
            while True:
                content += file.read(min(_CHUNK - len(content), document.stop - offset - len(content)))
                if len(content) < _CHUNK:
                    yield TextChunk(document, offset, content, last=True)
                    return
                cut = _cut(content)
                yield TextChunk(document, offset, content[:cut], last=False)
                offset, content = offset + cut, content[cut:]
    except OSError as error:
        raise DataError(f"{document.path} cannot be read ({error.strerror})") from error


def _cut(content: bytes) -> int:
    """Return where to end a chunk: before its last line break, else before its last UTF-8 character."""
    cut = content.rfind(b"\n")
    if cut <= 0:
        starts = (place for place in range(len(content) - 1, len(content) - 5, -1) if content[place] & 0xC0 != 0x80)
        cut = next(starts, len(content))
    return cut


def _not_text(batch: Sequence[TextChunk]) -> DataError:
    for chunk in batch:
        try:
            chunk.content.decode()
        except UnicodeDecodeError as error:
            return DataError(
                f"{chunk.document.path} is not UTF-8 text (byte {chunk.offset + error.start}); "
                "leave it out, convert it, or use the tokenizer 'bytes'"
            )
    raise AssertionError("every chunk is UTF-8")


def _line_start(path: Path, offset: int, stop: int) -> int:
    """Return the first beginning of a line, or else of a UTF-8 character, at or after `offset`."""
    with path.open("rb") as file:
        file.seek(offset)
        ahead = file.read(min(64 * 1024, stop - offset))
    line = ahead.find(b"\n") + 1
    if 0 < line < stop - offset:
        return offset + line
    return offset + next((place for place, byte in enumerate(ahead[:4]) if byte & 0xC0 != 0x80), 0)


def _match(pattern: str, root: Path) -> list[Path]:
    found = list(paths.files_of(pattern, root))
    if not found and paths.dangling(pattern, root):
        raise DataError(f"'{pattern}' is a link that leads nowhere or back to itself; name a file")
    if not found:
        raise DataError(f"no file matches '{pattern}' (looked in {root.resolve()}); check the path")
    return found


def _distinct(documents: Sequence[TextDocument]) -> Iterator[TextDocument]:
    """Yield the first document of each content; only files of equal size are read."""
    sizes = Counter(document.size for document in documents)
    seen: set[bytes] = set()
    for document in documents:
        if sizes[document.size] > 1:
            with document.path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").digest()
            if digest in seen:
                continue
            seen.add(digest)
        yield document
