"""Rows that stay with their node: the host's dataset without rows, and a site's own dataset beside it.

The host's dataset has the form of the rows, the tokenizer's files and perhaps public held-out rows. A site makes its
rows with that tokenizer, in that form, in a folder of its own.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from barnraise.config.data_sections import TextData
from barnraise.core.errors import DataError
from barnraise.core.files import write_file
from barnraise.core.sites import OwnRows, SiteTerms, rounded
from barnraise.core.types import RowRange
from barnraise.data import shards, text, tokenizers
from barnraise.data.batches import Rows
from barnraise.data.gathering import gather
from barnraise.data.meta import META, Format, Meta
from barnraise.data.paths import files_of
from barnraise.data.ranges import distinct
from barnraise.data.shards import Dataset
from barnraise.data.sources import only_text

TOKENIZER_FILE = "tokenizer.json"
ROWS, SALT, SOURCE = "rows", "salt", "source"
"""In a site's folder: its dataset, the salt of its hash, and the fingerprint of the files behind the dataset."""

SPLIT_SEED = 0
"""Seeds a site's choice of held-out rows and the order of the others: its own files alone determine its rows."""

_FORM_FIELDS = tuple(name for name in Format.__struct_fields__ if name != "ordered")


def build_form(folder: Path, public: Sequence[str], *, tokenizer: str, context: int, seed: int) -> Meta:
    """Make the host's dataset in `folder`: no rows to train on, and held-out rows of the `public` files if any.

    Raises DataError as `text.build`.
    """
    coder = tokenizers.load(tokenizer)
    held = list(text.rows(text.find(public), coder, context)) if public else []
    if public and not held:
        raise DataError(f"the public files do not fill one row of {context} tokens; give more text, or lower context")
    none = np.zeros((0, context), np.uint32)
    form = text.form_of(coder, (context,))
    return shards.write(folder, form, None, np.concatenate([none, *held]), files=coder.files(), seed=seed)


def form_digest(meta: Meta) -> str:
    """Return the SHA-256 of the form of the rows and of their tokenizer: sites with equal ones have rows alike."""
    form = {name: msgspec.to_builtins(getattr(meta, name)) for name in _FORM_FIELDS if _is_set(meta, name)}
    coder = [info.sha256 for info in meta.files if info.name == TOKENIZER_FILE]
    return hashlib.sha256(msgspec.json.encode([form, coder], order="sorted")).hexdigest()


def _is_set(meta: Meta, name: str) -> bool:
    return getattr(meta, name) is not msgspec.UNSET


def prepared(folder: Path, files: Sequence[str], meta: Meta, tokenizer: Path, terms: SiteTerms) -> OwnDataset:
    """Return the site's dataset of `files` for a run whose dataset is `meta`, made in `folder` if it is not there.

    `tokenizer` is the folder with the run's tokenizer. One file that is a folder with a dataset is used as it is.
    Raises DataError where there are no rows, or rows of another tokenizer or form.
    """
    given = Path(files[0]).expanduser() if len(files) == 1 else None
    if given is not None and (given / META).is_file():
        return _fitting(OwnDataset.open(given, verify=True), meta)
    rows, source = folder / ROWS, folder / SOURCE
    mark = _fingerprint(files, meta, terms)
    if source.is_file() and source.read_text() == mark and (rows / META).is_file():
        return _fitting(OwnDataset.open(rows), meta)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    source.unlink(missing_ok=True)
    coder, context = "bytes" if meta.tokenizer == "bytes" else tokenizer, meta.context
    if only_text(files):
        text.build(rows, files, tokenizer=coder, context=context, held_out=terms.held_out, seed=SPLIT_SEED)
    else:
        section = TextData(kind="text", files=list(files), context=context, held_out=terms.held_out)
        found = gather(section, SPLIT_SEED)
        sides = found.training(), found.held_out()
        text.build_of(rows, *sides, tokenizer=coder, context=context, seed=SPLIT_SEED)
    write_file(source, mark.encode())
    return _fitting(OwnDataset.open(rows), meta)


def _fingerprint(files: Sequence[str], meta: Meta, terms: SiteTerms) -> str:
    """Return a hash of the files' names, sizes and times, and of the form of the rows."""
    paths = sorted({path.resolve() for pattern in files for path in files_of(pattern)})
    found = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    content = msgspec.json.encode([found, form_digest(meta), terms.held_out])
    return hashlib.sha256(content).hexdigest()


def _fitting(own: OwnDataset, meta: Meta) -> OwnDataset:
    """Return `own`; DataError where its rows are of another tokenizer or form than the run's."""
    there, wanted = own.meta, meta
    if not own.num_rows:
        raise DataError(f"{own.folder} has no rows to train on; name the text files instead, or another dataset")
    for name in _FORM_FIELDS:
        has, needs = getattr(there, name), getattr(wanted, name)
        if has != needs:
            raise DataError(
                f"the rows in {own.folder} were made with {name} {has}, but the run has {needs}; name the text files "
                "instead, or make the dataset again with the run's tokenizer and context"
            )
    if form_digest(there) != form_digest(wanted):
        raise DataError(
            f"the rows in {own.folder} were made with another tokenizer than the run's; name the text files instead, "
            "or make the dataset again with the run's tokenizer"
        )
    if len(there.lengths) > 1:
        raise DataError(f"the rows in {own.folder} have {len(there.lengths)} lengths; make the dataset with one")
    return own


def described(own: OwnDataset, folder: Path, terms: SiteTerms) -> OwnRows:
    """Return what the controller learns of a site's rows; the salt of the hash is kept in `folder`."""
    path = folder / SALT
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_file(path, secrets.token_bytes(32), mode=0o600)
    names = "".join(info.sha256 for info in own.meta.row_files())
    digest = hmac.new(path.read_bytes(), names.encode(), hashlib.sha256).hexdigest()
    losses = terms.releases.held_out
    held_out = rounded(own.meta.held_out.rows, up=False) if losses != "off" else 0
    rows = rounded(own.num_rows, up=True)
    return OwnRows(rows=rows, held_out=held_out, digest=digest, form=form_digest(own.meta), losses=losses)


class OwnDataset(Dataset):
    """A site's dataset: its rows are numbered through all shards, whichever lane the controller calls them.

    The controller knows a rounded number of rows, so rows behind the last are the first ones again.
    """

    def rows(self, shard: int, start: int, stop: int) -> Rows:
        """Return rows start..stop-1 of the site's own, a structured array as `Dataset.rows`."""
        if not 0 <= start < stop <= 2 * self.num_rows:
            raise DataError(f"rows {start} to {stop} asked for, but there are {self.num_rows}")
        found = [super(OwnDataset, self).rows(*piece) for piece in self._pieces(start, stop)]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def distinct(self, rows: Iterable[RowRange]) -> list[RowRange]:
        """Return ranges of lane 0 that hold each of these rows once: those behind the last, and no repetition of them.

        A pass over the declared rows then names each row once, as differential privacy counts it.
        """
        ends = [(some.start, min(some.stop, self.num_rows)) for some in rows]
        return distinct([RowRange(0, start, stop) for start, stop in ends if start < stop])

    def _pieces(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Return (shard, start, stop) of these rows, in order."""
        pieces: list[tuple[int, int, int]] = []
        sizes, place = self.index.sizes, start % self.num_rows
        left = stop - start
        while left > 0:
            shard, first = 0, place
            while first >= sizes[shard]:
                first, shard = first - sizes[shard], shard + 1
            count = min(left, sizes[shard] - first)
            pieces.append((shard, first, first + count))
            left, place = left - count, (place + count) % self.num_rows
        return pieces
