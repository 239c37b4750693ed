"""The tokens of a data section, before any data is made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from barnraise.config.data_sections import FileData, RowsData, SatData, TokenizedData
from barnraise.config.problems import Problem
from barnraise.config.schema import RunFile
from barnraise.core.errors import InputError
from barnraise.data.lengths import SHARD_BYTES, in_order, mean_length
from barnraise.data.sat.styles import TRAIL_STYLES
from barnraise.models.attention import SEPARATES, packs
from barnraise.models.problems import CAUSAL

if TYPE_CHECKING:
    from barnraise.data.sat.options import SatOptions


@dataclass(frozen=True)
class Vocabulary:
    """The number of token ids, and the special ones."""

    size: int
    bos_id: int | None
    eos_id: int | None
    pad_id: int | None


def row_lengths(run_file: RunFile) -> tuple[int, ...]:
    """Return the tokens of the rows to train on, the shortest first: usually one number."""
    return in_order(run_file.data.context)


def longest_row(run_file: RunFile) -> int:
    """Return the tokens of the longest row, which the model must read, and of the held-out rows."""
    return row_lengths(run_file)[-1]


def shard_bytes(run_file: RunFile) -> int:
    """Return the most bytes of a file of rows."""
    return run_file.data.shard_bytes if isinstance(run_file.data, FileData) else SHARD_BYTES


def mean_row(run_file: RunFile) -> int:
    """Return the mean tokens of a row to train on."""
    return mean_length(row_lengths(run_file))


def sat_options(run_file: RunFile) -> SatOptions:
    """Return the options of a SAT data section; OptionError or UnknownNameError for incompatible ones."""
    from barnraise.data.sat.options import SatOptions  # brings numpy, which text does not need here

    assert isinstance(run_file.data, SatData)
    values = run_file.data.model_dump(exclude={"kind", "retokenize"})
    if values["seed"] is None:
        values["seed"] = run_file.run.seed
    if values["packing"] is None:
        values["packing"] = run_file.data.style in TRAIL_STYLES and keeps_apart(run_file)
    return SatOptions.of(**values, tokens=run_file.training.tokens)


def model_type(run_file: RunFile) -> str:
    """Return the type of the run's model; ModelError when the folder of a pretrained one names none."""
    from barnraise.models.config import read_config

    model = run_file.model
    return str(model.architecture if model.path is None else read_config(Path(model.path).expanduser())["model_type"])


def keeps_apart(run_file: RunFile) -> bool:
    """Return whether the run's model is known to keep several examples of a row apart."""
    if run_file.model.problem not in (None, CAUSAL):
        return False
    try:
        return packs(model_type(run_file))
    except InputError:
        return False  # `preflight` tells that the model cannot be read


def tokenizer_of(run_file: RunFile) -> str:
    """Return the tokenizer of data from files: `bytes` or a path.

    Without a `data.tokenizer` it is the model folder's.
    """
    assert isinstance(run_file.data, TokenizedData)
    return run_file.data.tokenizer or run_file.model.path or "bytes"


def vocabulary(run_file: RunFile) -> Vocabulary:
    """Return the tokens of the run's data; DataError when a tokenizer cannot be read."""
    if isinstance(run_file.data, TokenizedData):
        from barnraise.data import tokenizers

        coder = tokenizers.load(tokenizer_of(run_file))
        return Vocabulary(coder.vocab_size, coder.bos_id, coder.eos_id, coder.pad_id)
    if isinstance(run_file.data, RowsData):
        return Vocabulary(1, None, None, None)
    from barnraise.data.sat.dataset import form

    rows = form(sat_options(run_file))
    return Vocabulary(rows.vocab_size, rows.bos_id, rows.eos_id, rows.pad_id)


def data_problems(run_file: RunFile) -> list[Problem]:
    """Return the problems of the data section in itself."""
    data = run_file.data
    if not isinstance(data, SatData):
        return []
    try:
        sat_options(run_file)
    except InputError as error:
        return [Problem(("data",), str(error))]
    if data.packing and not keeps_apart(run_file):
        text = (
            "is true, but a model of this architecture cannot keep the examples of a row apart; set it to false, or "
            f"use one of {', '.join(SEPARATES)}"
        )
        return [Problem(("data", "packing"), text)]
    return []
