"""SAT datasets: formulas with the traces that a DPLL solver leaves on them.

A row is one example (see `tokenizer`), padded to `context`, or several with `packing`; only the trace is learned, not
the formula. No formula is drawn twice, up to the order of clauses and literals, so none is in two sets. Examples longer
than `context` are left out, in all sets alike; `sat.json` in the dataset's folder records how many, beside the options.

Held-out examples are kept a second time without packing and padding, in a file for each set: a model writes a trace
for each, which the checker judges.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from msgspec import UNSET

from barnraise.core.errors import DataError, InputError
from barnraise.data import shards
from barnraise.data.meta import Format, Meta, Targets
from barnraise.data.packing import PACKED_COLUMNS, EncodedExample, pack
from barnraise.data.sat.collection import counted
from barnraise.data.sat.drawing import CHUNK, Counts, Drawing, padded
from barnraise.data.sat.examples import Example
from barnraise.data.sat.options import MAX_SET, NATURAL, SatOptions
from barnraise.data.shards import Chunk

RECORD = "sat.json"
MAX_RECORD_BYTES = 1 << 20
TOLD_EVERY = 200_000
"""Formulas to train on, after which it is told how many there are."""

_TYPE = "<u2"
"""The type of token ids in the files of held-out sets: no vocabulary is larger."""


@dataclass(frozen=True)
class HeldOutSet:
    """Held-out examples by name: each row has the token ids of a prompt, its trace and `<eos>`, without padding.

    `searching`: each trace takes at least one decision back. `familiar`: the formulas are of the kinds and sizes that
    are trained on.
    """

    name: str
    rows: list[list[int]]
    searching: bool = False
    familiar: bool = True


def build(
    folder: Path | str,
    options: SatOptions,
    say: Callable[[str], None] = lambda text: None,
    processes: int | None = None,
) -> Meta:
    """Make the dataset in `folder`, and tell the counts of each set; the same options give the same bytes.

    `processes` draw and solve the formulas; where it is None one for each core, once they are worth their start. Raises
    DataError when the options do not yield enough distinct formulas that fit.
    """
    drawing, told = Drawing(options, processes, say), dict[str, Counts]()
    held_out = _held_out(drawing, told, say)
    files = {set_file(place): _encoded(rows[:MAX_SET]) for place, rows in enumerate(held_out.values())}
    for (patterns, _), collection in drawing.collections.items():
        say(f"{', '.join(patterns)}: {collection}")

    def record() -> dict[str, bytes]:
        sets = {name: asdict(found) for name, found in told.items()}
        content = {"options": options.as_dict(), "sets": list(held_out), "counts": sets}
        if drawing.collections:
            content["files"] = counted([*drawing.collections.values()])
        return files | drawing.maker.tokenizer.files() | {RECORD: json.dumps(content, indent=1).encode()}

    with ExitStack() as stack:  # ends the processes where rows cannot be written
        parts = [
            stack.enter_context(closing(_training(drawing, place, name, told, say)))
            for place, name in enumerate(options.parts)
        ]
        first, *later = [_rows(part, options) for part in parts]
        return shards.write(
            folder,
            form(options),
            first,
            _rows(iter(held_out[NATURAL]), options),
            later=later,
            files=record,
            seed=options.seed,
        )


def form(options: SatOptions) -> Format:
    """Return the form of the rows of a dataset made with `options`, without making data."""
    tokenizer = options.tokenizer()
    return Format(
        kind="sat",
        tokenizer=tokenizer.name,
        context=options.context,
        vocab_size=tokenizer.vocab_size,
        pad_id=tokenizer.pad_id,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        targets=Targets(after=tokenizer.colon_id, until=tokenizer.eos_id),
        columns=PACKED_COLUMNS if options.packing else UNSET,
        ordered=True if options.stages else UNSET,
    )


def options_of(dataset: shards.Dataset) -> SatOptions:
    """Return the options of a dataset; DataError when it is not a SAT dataset or its record is damaged."""
    path = dataset.folder / RECORD
    try:
        if path.stat().st_size > MAX_RECORD_BYTES:
            raise DataError(f"{path} has more than {MAX_RECORD_BYTES} bytes; make the dataset again")
        return SatOptions.of(**json.loads(path.read_bytes())["options"])
    except OSError as error:
        raise DataError(f"{dataset.folder} is not a SAT dataset: it has no {RECORD} ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError) as error:
        raise DataError(f"{path} does not describe a SAT dataset ({error}); make the dataset again") from error


def held_out_sets(dataset: shards.Dataset, limit: int | None = None) -> list[HeldOutSet]:
    """Return the held-out sets, each with its first `limit` examples.

    The first is named `held out`: its formulas are distributed as those of training. DataError when a file is damaged.
    """
    options, eos = options_of(dataset), dataset.meta.eos_id
    found = []
    chosen = [HeldOutSet(NATURAL, [])]
    for choice in options.held_out_sets:
        chosen.append(HeldOutSet(choice.name, [], choice.searching, options.is_familiar(choice.source)))
    for place, kind in enumerate(chosen):
        path = dataset.folder / set_file(place)
        content = path.read_bytes() if path.is_file() else b""
        ids = np.frombuffer(content if len(content) % 2 == 0 else b"", _TYPE)
        ends = np.flatnonzero(ids == eos) + 1
        if not len(ends) or ends[-1] != len(ids) or ids.max() >= dataset.meta.vocab_size:
            raise DataError(f"{path} is missing or damaged; make the dataset again")
        starts = [0, *ends[:-1].tolist()]
        rows = [ids[start:end].tolist() for start, end in zip(starts[:limit], ends[:limit].tolist(), strict=True)]
        found.append(replace(kind, rows=rows))
    return found


def set_file(place: int) -> str:
    """Return the name of the file with the examples of a held-out set."""
    return f"set-{place:02d}.bin"


def is_set_file(name: str) -> bool:
    """Return whether a file of a dataset has the examples of a held-out set."""
    return name.startswith("set-")


def _held_out(drawing: Drawing, told: dict[str, Counts], say: Callable[[str], None]) -> dict[str, list[Example]]:
    """Return the examples of the held-out sets, the natural one first.

    Those with files of their own are drawn before it, which may have the same files.
    """
    options, found = drawing.options, dict[str, list[Example]]()
    choices = [(NATURAL, options.natural, options.held_out)]
    choices += [(choice.name, choice.source, choice.formulas) for choice in options.held_out_sets]
    places = sorted(range(len(choices)), key=lambda place: place == 0 or not choices[place][1].files)
    for place in places:
        name, source, number = choices[place]
        if source.files:
            drawing.collection(source)  # its errors name files
        counts = told[name] = Counts()
        try:
            found[name] = list(drawing.held_out(source, (options.seed, 1, place), counts, number))
        except DataError as error:
            raise DataError(f"held-out set '{name}': {error}") from error
        say(f"{name}: {counts}")
    return {name: found[name] for name, _, _ in choices}


def _training(
    drawing: Drawing, place: int, name: str, told: dict[str, Counts], say: Callable[[str], None]
) -> Generator[Example, None, None]:
    """Yield the examples of a part of training: the number that the options ask for, or those that fill its tokens."""
    options = drawing.options
    (source, left), number = options.parts[name], options.amount.number
    counts = told[name] = Counts()
    with closing(drawing.examples(source, (options.seed, 3, place), counts, number)) as examples:
        for done, example in enumerate(examples, start=1):
            yield example
            if done % TOLD_EVERY == 0:
                say(f"{name}: {done:,} formulas so far")
            left -= len(example.ids) if options.packing else options.context
            if left <= 0 and number is None:
                break
    say(f"{name}: {counts}")


def _rows(examples: Iterator[Example], options: SatOptions) -> Iterator[Chunk]:
    """Yield chunks of rows with these examples."""
    pad = options.tokenizer().pad_id
    if options.packing:
        places = np.arange(options.context)
        encoded = (EncodedExample(one.ids, places[: len(one.ids)] >= one.start) for one in examples)
        yield from pack(encoded, options.context, pad)
        return
    while chunk := list(itertools.islice(examples, CHUNK)):
        yield padded(chunk, options.context, pad)


def _encoded(examples: Iterable[Example]) -> bytes:
    """Return the ids of examples, one after the other: each ends with `<eos>`, which is nowhere else."""
    return np.concatenate([example.ids for example in examples]).astype(_TYPE).tobytes()
