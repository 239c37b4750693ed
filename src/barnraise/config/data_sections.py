"""The data sections of a run file, by kind of training data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from barnraise.config.section import Section
from barnraise.config.values import Bytes, Range, RowLengths, Text

Retokenize = Annotated[
    bool,
    Field(
        description="Train a model of `model.path` on the token ids of another tokenizer than its own. The model "
        "must learn again what each id means."
    ),
]


class TextData(Section):
    """Text from files and folders, by bytes or with a tokenizer found on disk."""

    kind: Literal["text"] = Field(description="This section describes text.")
    files: list[Text] = Field(
        min_length=1,
        description="Files, folders or glob patterns (`**` for any depth), from the folder barnraise is started in. "
        "They hold plain text: records, tables, archives and documents of other programs are refused.",
    )
    tokenizer: Text | None = Field(
        default=None,
        description="`bytes`, or the path of a Hugging Face tokenizer. When not given, it is the tokenizer in the "
        "folder `model.path`, and `bytes` for a model without a path.",
    )
    retokenize: Retokenize = False
    context: RowLengths = Field(
        default=128,
        description="Tokens a row, or up to eight ascending numbers: the text is then cut into rows of these lengths, "
        "in equal shares of tokens. The model reads the longest, of which the held-out rows are.",
    )
    held_out: float = Field(default=0.05, gt=0, le=0.5, description="Share of the text kept for evaluation.")
    shard_bytes: Annotated[Bytes, Field(le=64 << 20)] = Field(
        default=32 << 20,
        description="Most bytes of a file of rows: what a worker fetches before it can begin. Smaller ones suit slow "
        "links, larger ones fewer requests.",
    )


class SatData(Section):
    """Satisfiability problems with the trace of a DPLL solver as the answer to imitate."""

    kind: Literal["sat"] = Field(description="This section describes satisfiability problems.")
    variables: Range = Field(
        default=(4, 4), strict=False, description="Fewest and most variables of a formula, drawn evenly."
    )
    clause_ratio: float = Field(default=2.0, ge=0.1, le=1000, description="Clauses a variable.")
    clause_lengths: Range = Field(
        default=(1, 3), strict=False, description="Fewest and most literals of a clause, drawn evenly."
    )
    family: Literal["random", "skewed", "marginal", "crafted"] = Field(
        default="random", description="The family of the formulas; marginal pairs differ in one literal and in verdict."
    )
    skew: float = Field(default=1.0, ge=0, le=10, description="Exponent of the skewed family: 0 is even.")
    balanced: bool = Field(default=True, description="Keep as many satisfiable as unsatisfiable formulas.")
    style: Literal["terse", "restated"] = Field(
        default="restated", description="Whether a trace restates the simplified clauses after each step."
    )
    heuristic: Literal["first", "shortest", "two_sided"] = Field(
        default="first", description="How the solver decides; `first` is the easiest to imitate."
    )
    context: int = Field(default=62, ge=8, le=1 << 20, description="Tokens a row; longer examples are left out.")
    examples: int = Field(default=40_000, ge=1, le=20_000_000, description="Formulas to train on.")
    held_out: int = Field(default=500, ge=2, le=20_000_000, description="Formulas kept for evaluation.")
    held_out_backtracking: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="More held-out formulas, whose traces all take a decision back: where formulas are small, unit "
        "propagation settles nearly all others.",
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] | None = Field(
        default=None, description="Seeds the formulas; run.seed when not given."
    )
    retokenize: Retokenize = False
