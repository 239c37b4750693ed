"""Checks of the token ids of a checkpoint folder (`model.path`) against the data's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from barnraise.config.data_sections import RowsData, TokenizedData
from barnraise.config.problems import Problem
from barnraise.config.schema import RunFile
from barnraise.core.errors import DataError
from barnraise.data import same_ids, tokenizers
from barnraise.plan.dataset import sat_options, tokenizer_of

TOKENIZER = ("data", "tokenizer")


def token_problems(run_file: RunFile) -> tuple[list[Problem], list[Problem]]:
    """Return (errors, warnings) about the data's tokenizer, for a model that has learned its own ids.

    The tokenizer of another model gives other ids, which the loss does not distinguish from a model that has learned
    little.
    """
    data, folder = run_file.data, Path(run_file.model.path or "").expanduser()
    if run_file.model.path is None or isinstance(data, RowsData) or data.retokenize or not folder.is_dir():
        return [], []
    given = data.tokenizer is not None if isinstance(data, TokenizedData) else True
    if not tokenizers.is_in(folder):
        text = f"model.path '{folder}' has no tokenizer"
        if given:
            warning = f"{text}, so nothing shows that the data has the token ids that the model has learned"
            return [], [Problem(_place(run_file), warning)]
        remedy = "copy the model's own into the folder, or name it: `tokenizer: FOLDER`"
        return [Problem(TOKENIZER, f"is not given, and {text}; {remedy}")], []
    try:
        own = same_ids.mapped(tokenizers.files_at(folder), str(folder))
    except DataError as error:
        return [Problem(("model", "path"), str(error))], []
    if not given:
        return [], []
    try:
        differs = same_ids.difference(same_ids.mapped(_files(run_file), _name(run_file)), own)
    except DataError as error:
        return [Problem(_place(run_file), str(error))], []
    if not differs:
        return [], []
    remedy = "leave data.tokenizer out" if isinstance(data, TokenizedData) else "give an architecture instead of a path"
    text = (
        f"{_name(run_file)} is not the tokenizer of the model in '{folder}': {differs}. The model would be trained on "
        f"ids that mean something else to it; {remedy}, or set data.retokenize: true where that is what you want"
    )
    return [Problem(_place(run_file), text)], []


def _place(run_file: RunFile) -> tuple[str, ...]:
    return TOKENIZER if isinstance(run_file.data, TokenizedData) else ("data", "kind")


def _name(run_file: RunFile) -> str:
    named = isinstance(run_file.data, TokenizedData)
    return f"'{tokenizer_of(run_file)}'" if named else "that of satisfiability problems"


def _files(run_file: RunFile) -> Mapping[str, bytes]:
    if isinstance(run_file.data, TokenizedData):
        return tokenizers.load(tokenizer_of(run_file)).files()
    return sat_options(run_file).tokenizer().files()
