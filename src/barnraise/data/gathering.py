"""Examples of a data section: those to train on and how often, those held out, and those left out and why.

`gather` reads all files once: it finds every fault, and decides on each record by a hash of its content and the seed.
The files are read again for the examples themselves. In memory are 17 bytes for each record.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from barnraise.config.data_sections import Fields, FileData, HeldOut
from barnraise.core.errors import DataError
from barnraise.data.examples import Example, Origin, hash_of
from barnraise.data.forms import FormError, FormReader
from barnraise.data.near import NearIndex, sketch
from barnraise.data.records import RecordFile, Wanted
from barnraise.data.sources import Source, record_files, sources_of

MOST_EPOCHS = 1000

_SHOWN = 3
_BAD, _EMPTY, _TRAINED, _HELD, _EQUAL, _NEAR = range(6)
_LOW = np.uint64(2**32 - 1)

Hashes = npt.NDArray[np.uint64]
States = npt.NDArray[np.uint8]


@dataclass
class ExampleCounts:
    """Numbers of records: read, left out for each reason, held out, and trained on, by source.

    `faults` has the first bad ones in words. `epochs` is how often a source's examples are trained on.
    """

    records: int = 0
    bad: int = 0
    faults: list[str] = field(default_factory=list)
    empty: int = 0
    equal: int = 0
    near: int = 0
    held_out: int = 0
    training: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        reasons = {
            "bad": self.bad,
            "empty": self.empty,
            "equal to another": self.equal,
            "nearly equal to a held-out one": self.near,
        }
        left_out = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count)
        read = f"{self.records:,} records, {sum(self.training.values()):,} to train on, {self.held_out:,} held out"
        sources = ", ".join(
            f"{name} {count:,} x {self.epochs.get(name, 1):.3g}" for name, count in self.training.items()
        )
        mixed = f" ({sources})" if len(self.training) > 1 or set(self.epochs.values()) - {1.0} else ""
        return f"{read}{mixed}{f'; left out: {left_out}' if left_out else ''}"


class BadRecord(NamedTuple):
    """A record that makes no example, and why."""

    source: Origin
    why: str

    def __str__(self) -> str:
        return f"{self.source}: {self.why}"


class SourceFile:
    """A file of a source, with the form that its first record has, for all readings."""

    def __init__(self, data: FileData, source: Source, file: RecordFile) -> None:
        self.source, self.file = source, file
        self.records = slice(0, 0)  # the numbers of its records among those of all files
        self._data = data
        self._form: FormReader | None = None

    @property
    def deciding(self) -> list[str]:
        """The fields that decide which examples are held out."""
        held_out = self._data.held_out
        if self.source.held_out or not isinstance(held_out, HeldOut):
            return []
        return [name for name in (held_out.by, held_out.field) if name]

    def read(self, wanted: Wanted | None = None) -> Iterator[tuple[Example | BadRecord, Mapping[str, Any]]]:
        """Yield the example of each record, or why it makes none, and its fields."""
        if self._form is None and (names := self.file.columns()) is not None:
            try:
                self._form = FormReader(self._data, self.source.fields, names)
            except FormError as error:
                raise DataError(f"{self.file.name} {error}") from error
        columns = None if self._form is None else {*self._form.columns, *self.deciding}
        for number, fields, fault in self.file.read(columns, wanted):
            origin = Origin(self.file.name, number, self.file.unit)
            if fields is None:
                yield BadRecord(origin, fault), {}
                continue
            try:
                self._form = self._form or FormReader(self._data, self.source.fields, fields)
                yield self._form.example(fields, origin), fields
            except FormError as error:
                yield BadRecord(origin, str(error)), fields


class Examples:
    """The examples of a data section, after its files were read once.

    Equal files and seeds give equal examples in the same order on every machine. `counts` tells what was left out.
    """

    def __init__(self, files: Sequence[SourceFile], states: States, times: npt.NDArray[np.uint16]) -> None:
        """Use `gather`; `times` says how often each record is trained on."""
        self.counts = ExampleCounts()
        self._files, self._states, self._times = files, states, times

    def training(self) -> Iterator[Example]:
        """Yield the examples to train on, source by source, and again as often as the mixture says."""
        for turn in range(int(self._times.max(initial=0))):
            yield from self.chosen(self._times > turn)

    def held_out(self) -> Iterator[Example]:
        """Yield the held-out examples, each once."""
        yield from self.chosen(self._states == _HELD)

    def chosen(self, wanted: Wanted) -> Iterator[Example]:
        """Yield the examples of some records, given by a truth value for each."""
        for file in self._files:
            own = wanted[file.records]
            if own.any():
                for found, _ in file.read(own):
                    if isinstance(found, BadRecord):
                        raise DataError(f"{found}: the file has changed while it was read; start again")
                    yield found


def gather(data: FileData, seed: int, root: Path | str = ".") -> Examples:
    """Read all files of a data section once, and return its examples.

    DataError names the first fault with its file and place, or what is missing.
    """
    return _Survey(data, seed, root).examples()


def peek(data: FileData, root: Path | str = ".") -> Iterator[Example]:
    """Yield examples to train on before anything is known of others: held-out ones are not passed over.

    DataError as `gather`, where nothing can be read, or more than `data.skip_bad` records are bad.
    """
    bad = 0
    for source in sources_of(data, root):
        for file in () if source.held_out else source.files:
            for found, _ in SourceFile(data, source, file).read():
                if isinstance(found, Example):
                    yield found
                elif (bad := bad + 1) > data.skip_bad:
                    raise DataError(f"{found}. To leave such records out, raise data.skip_bad")


def first_fault(data: FileData, pattern: str, fields: Fields) -> str:
    """Return the fault of the first record in a file of `pattern`; empty where the first of each file is an example.

    DataError where a file cannot be read.
    """
    source = Source("files", record_files([pattern]), fields)
    firsts = (next(SourceFile(data, source, file).read(), None) for file in source.files)
    faults = (first[0] for first in firsts if first is not None)
    return next((str(fault) for fault in faults if isinstance(fault, BadRecord) and not data.skip_bad), "")


class _Survey:
    """The first reading of all files, and the decisions on their records."""

    def __init__(self, data: FileData, seed: int, root: Path | str) -> None:
        self.data, self.sources = data, sources_of(data, root)
        self.choice = data.held_out if isinstance(data.held_out, HeldOut) else HeldOut(share=data.held_out)
        self.key = seed.to_bytes(8, "big")
        self.counts = ExampleCounts()
        self.files = [SourceFile(data, source, file) for source in self.sources for file in source.files]
        self.hashes, self.draws, self.kept = array("Q"), array("Q"), bytearray()

    def examples(self) -> Examples:
        """Read all files, and decide on their records."""
        for file in self.files:
            first = len(self.kept)
            self._survey(file)
            file.records = slice(first, len(self.kept))
        hashes, states = np.array(self.hashes, np.uint64), np.array(self.kept, np.uint8)
        if self.choice.share is not None and (states == _TRAINED).any() and not (states == _HELD).any():
            draws = np.array(self.draws, np.uint64)
            states[(states == _TRAINED) & (draws == draws[states == _TRAINED].min())] = _HELD
        if self.data.deduplicate != "none":
            _mark_equal(hashes, states)
        if self.data.deduplicate == "near":
            self._mark_near(states)
        self._count(states)
        found = Examples(self.files, states, self._times(hashes, states))
        found.counts = self.counts
        return found

    def _survey(self, file: SourceFile) -> None:
        """Note the state and the hashes of each record of a file."""
        deciding = file.deciding
        for found, fields in file.read():
            state, content, draw = _BAD, 0, 0
            if isinstance(found, Example):
                content = draw = found.hash(self.key)
                if missing := [name for name in deciding if fields.get(name) is None]:
                    there = ", ".join(map(str, fields))
                    found = BadRecord(
                        found.source, f"has no '{missing[0]}' (there are: {there}); correct data.held_out"
                    )
                elif self.choice.by is not None and deciding:
                    draw = hash_of(msgspec.json.encode(fields[self.choice.by], order="sorted"), self.key)
            if isinstance(found, BadRecord):
                self._tolerate(found)
            elif found.text is not None and not found.text.strip():
                state = _EMPTY
            else:
                state = _HELD if file.source.held_out or self._is_held_out(draw, fields) else _TRAINED
            self.kept.append(state)
            self.hashes.append(content)
            self.draws.append(draw)

    def _tolerate(self, fault: BadRecord) -> None:
        """Count a bad record; DataError where it is one too many."""
        self.counts.bad += 1
        self.counts.faults += [str(fault)] if self.counts.bad <= _SHOWN else []
        most = self.data.skip_bad
        if self.counts.bad > most:
            nth = f" It is bad record number {self.counts.bad}, and data.skip_bad is {most}." if most else ""
            raise DataError(f"{fault}.{nth} To leave such records out, raise data.skip_bad")

    def _is_held_out(self, draw: int, fields: Mapping[str, Any]) -> bool:
        if self.choice.share is not None:
            return draw < self.choice.share * 2**64
        if self.choice.field is not None:
            return _plain(fields[self.choice.field]) in map(_plain, self.choice.values)
        return False

    def _mark_near(self, states: States) -> None:
        """Mark examples to train on that nearly equal a held-out one."""
        found = Examples(self.files, states, np.zeros(0, np.uint16))
        index = NearIndex([sketch(example.words()) for example in found.held_out()])
        trained = np.flatnonzero(states == _TRAINED)
        for number, example in zip(trained, found.chosen(states == _TRAINED), strict=True):
            if index.has_near(sketch(example.words())):
                states[number] = _NEAR

    def _count(self, states: States) -> None:
        """Count the records of each state; DataError where none is left on a side."""
        counts, numbers = self.counts, np.bincount(states, minlength=6).tolist()
        counts.records, counts.empty, counts.held_out = len(states), numbers[_EMPTY], numbers[_HELD]
        counts.equal, counts.near = numbers[_EQUAL], numbers[_NEAR]
        for source in (source for source in self.sources if not source.held_out):
            own = [states[file.records] for file in self.files if file.source is source]
            counts.training[source.name] = sum(int((part == _TRAINED).sum()) for part in own)
        if not counts.held_out and self.choice.share is None:
            where = f"data.held_out.{'field' if self.choice.field else 'files'}"
            raise DataError(f"no example is held out ({counts}); correct {where}")
        for name, number in counts.training.items():
            if not number:
                raise DataError(f"data.{name} has no example to train on ({counts}); give more, or hold out fewer")

    def _times(self, hashes: Hashes, states: States) -> npt.NDArray[np.uint16]:
        """Return how often each record is trained on."""
        epochs = self.counts.epochs = _epochs(self.sources, self.counts.training)
        times = np.zeros(len(states), dtype=np.uint16)
        for file in self.files:
            part, source = file.records, file.source
            if not source.held_out:
                whole = int(epochs[source.name])
                again = (hashes[part] & _LOW) < (epochs[source.name] - whole) * 2**32
                times[part] = np.where(states[part] == _TRAINED, whole + again, 0)
        return times


def _mark_equal(hashes: Hashes, states: States) -> None:
    """Mark all but one of equal examples: a held-out one stays, else the first."""
    numbers = np.flatnonzero((states == _TRAINED) | (states == _HELD))
    order = numbers[np.lexsort((numbers, states[numbers] != _HELD, hashes[numbers]))]
    states[order[1:][hashes[order[1:]] == hashes[order[:-1]]]] = _EQUAL


def _epochs(sources: Sequence[Source], numbers: Mapping[str, int]) -> dict[str, float]:
    """Return how often the examples of each source are trained on.

    With weights w and numbers of examples n, a source is repeated w/n times the largest n/w.
    """
    trained = [source for source in sources if not source.held_out]
    if any(source.weight is None for source in trained):
        return {source.name: source.epochs for source in trained}
    largest = max(numbers[source.name] / (source.weight or 1) for source in trained)
    epochs = {source.name: largest * (source.weight or 1) / numbers[source.name] for source in trained}
    for name, count in epochs.items():
        if count > MOST_EPOCHS:
            raise DataError(
                f"the weight of data.{name} repeats its {numbers[name]} examples {count:.0f} times, more than "
                f"{MOST_EPOCHS}; lower it, or give more examples"
            )
    return epochs


def _plain(value: object) -> str:
    """Return a value as text, so that those of CSV files equal the run file's.

    >>> _plain(True) == _plain("true"), _plain(1) == _plain("1")
    (True, True)
    """
    return str(value).casefold()
