"""The data sections of a run file, by kind of training data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from barnraise.config.sat_sections import BacktrackingShare, Family, HeldOutSetSection, Names, Skew, StageSection
from barnraise.config.section import Section
from barnraise.config.values import MAX_COUNT, Bytes, ClauseRatio, Positive, Range, RowLength, RowLengths, Share, Text

Retokenize = Annotated[
    bool,
    Field(
        description="Train a model of `model.path` on the token ids of another tokenizer than its own. The model "
        "must learn again what each id means."
    ),
]


class Fields(Section):
    """The names of a record's fields in these files, where they are not the usual ones."""

    model_config = ConfigDict(json_schema_extra={"x-expected": "a section of keys, each our name of a field: theirs"})

    text: Text | None = Field(default=None, description="The text to train on; usually `text`.")
    messages: Text | None = Field(
        default=None, description="The list of a conversation's messages; usually `messages` or `conversations`."
    )
    prompt: Text | None = Field(default=None, description="What is asked, as text or messages; usually `prompt`.")
    completion: Text | None = Field(default=None, description="The answer to it; usually `completion`.")
    instruction: Text | None = Field(default=None, description="What is asked, in Alpaca's form; `instruction`.")
    input: Text | None = Field(default=None, description="Text that an instruction is about; usually `input`.")
    output: Text | None = Field(default=None, description="The answer in Alpaca's form; usually `output`.")
    choices: Text | None = Field(default=None, description="The texts to choose from; usually `choices`.")
    label: Text | None = Field(
        default=None,
        description="The right choice, as a number from 0, a letter, its label or its text; usually `label`, `answer` "
        "or `answerKey`.",
    )
    system: Text | None = Field(default=None, description="A system message beside the others; usually `system`.")
    tools: Text | None = Field(default=None, description="The tools that a chat template lists; usually `tools`.")
    role: Text | None = Field(default=None, description="The role, in each message; usually `role` or `from`.")
    content: Text | None = Field(default=None, description="The words, in each message; usually `content` or `value`.")


class HeldOut(Section):
    """The choice of the examples kept for evaluation: by a share, by files, or by the value of a field."""

    model_config = ConfigDict(json_schema_extra={"x-expected": "a section of keys: share, files or field"})

    share: Annotated[float, Field(gt=0, le=0.5)] | None = Field(
        default=None,
        description="About this share of the examples, whole ones, by a hash of their content and of run.seed: an "
        "example stays on its side when files are added.",
    )
    by: Text | None = Field(
        default=None,
        description="With a share: the field whose value is hashed instead of the content, so that all examples with "
        "the same value (an author, a document) are on the same side.",
    )
    files: list[Text] = Field(default=[], description="Files, folders or glob patterns of examples that are all kept.")
    field: Text | None = Field(default=None, description="The field whose value decides, such as `split`.")
    values: list[bool | int | Text] = Field(
        default=[], description="Values of the field: examples that have one of them are kept."
    )


class MixtureEntry(Section):
    """One of several sources of examples, and how often its examples are repeated."""

    files: list[Text] = Field(
        min_length=1, description="Files, folders or glob patterns, as in `data.files`, which is then left out."
    )
    weight: Positive | None = Field(
        default=None,
        description="Share of the mixture's examples, relative to the weights of the others: the source that is "
        "largest for its weight is read once, others as often as their weight needs. All sources have a weight, or "
        "none.",
    )
    epochs: Annotated[float, Field(gt=0, le=1000)] | None = Field(
        default=None,
        description="How often each example of the source is in the data: once when not given; 2.5 is twice, and a "
        "third time for half of them.",
    )
    fields: Fields | None = Field(default=None, description="Names of fields in this source, instead of `data.fields`.")


HeldOutShare = Annotated[float, Field(gt=0, le=0.5)]


class TokenizedData(Section):
    """The keys that the kinds of data with a tokenizer have in common."""

    kind: str
    tokenizer: Text | None = Field(
        default=None,
        description="`bytes`, or the path of a Hugging Face tokenizer. When not given, it is the tokenizer in the "
        "folder `model.path`, and `bytes` for a model without a path.",
    )
    retokenize: Retokenize = False


class FileData(TokenizedData):
    """The keys that the kinds of data from files have in common."""

    files: list[Text] = Field(
        default=[],
        description="Files, folders or glob patterns (`**` for any depth), from the folder barnraise is started in.",
    )
    mixture: Annotated[list[MixtureEntry], Field(max_length=100)] = Field(
        default=[], description="Several sources, each with a weight or a number of epochs, instead of files."
    )
    fields: Fields = Field(
        default_factory=lambda: Fields(), description="Names of the records' fields, where they are not the usual ones."
    )
    context: RowLengths
    held_out: HeldOutShare | HeldOut = Field(
        default=0.05,
        description="Share of the examples kept for evaluation, or a section: by files, by a field.",
        json_schema_extra={"x-expected": "a number above 0 and at most 0.5, or a section of keys"},
    )
    skip_bad: int = Field(
        default=0,
        ge=0,
        le=MAX_COUNT,
        description="Most records that may be left out because they are no valid examples; one more ends the "
        "preparation with an error. How many were left out, and why, is told.",
    )
    deduplicate: Literal["none", "exact", "near"] = Field(
        default="exact",
        description="Drop all but the first of equal examples (exact), and also training examples that nearly equal a "
        "held-out one, by MinHash (near). Files of plain text are compared as a whole, in all cases.",
    )
    urls: Annotated[list[Text], Field(max_length=8)] = Field(
        default=[],
        description="Prefixes (https://, http://, s3:// for a public bucket) under which copies of the files in "
        "RUN_DIR/data are: workers fetch them there, by digest, and from the controller what is not there.",
    )
    shard_bytes: Annotated[Bytes, Field(le=64 << 20)] = Field(
        default=32 << 20,
        description="Most bytes of a file of rows: what a worker fetches before it can begin. Smaller ones suit slow "
        "links, larger ones fewer requests.",
    )


class TextData(FileData):
    """Text from files and folders, by bytes or with a tokenizer found on disk.

    Plain text, or the `text` field of JSONL, CSV, Parquet or Arrow files and of `datasets` folders.
    """

    kind: Literal["text"] = Field(description="This section describes text.")
    context: RowLengths = Field(
        default=128,
        description="Tokens a row, or up to eight ascending numbers: the text is then cut into rows of these lengths, "
        "in equal shares of tokens. The model reads the longest, of which the held-out rows are.",
    )


class ChatData(FileData):
    """Conversations from JSONL, CSV, Parquet or Arrow files and `datasets` folders, through a chat template."""

    kind: Literal["chat"] = Field(description="This section describes conversations.")
    context: RowLength = Field(
        default=1024, description="Tokens a row. Several conversations share a row, without attention to each other."
    )
    chat_template: Text | None = Field(
        default=None, description="A file with a chat template (Jinja), instead of the tokenizer's own."
    )
    train_on: Literal["assistant", "completion", "all"] = Field(
        default="assistant",
        description="The tokens to learn: every answer of the assistant, the last answer alone (completion), or all.",
    )
    roles: dict[Text, Literal["system", "user", "assistant", "tool"]] = Field(
        default_factory=dict, description="Roles of the messages that have other names than the usual ones."
    )


class InstructData(FileData):
    """Prompts with completions from the same files, as plain text without a chat template."""

    kind: Literal["instruct"] = Field(description="This section describes prompts with completions.")
    context: RowLength = Field(
        default=1024, description="Tokens a row. Several examples share a row, without attention to each other."
    )
    train_on: Literal["completion", "all"] = Field(
        default="completion", description="The tokens to learn: those of the completions, or all."
    )


class RowsData(Section):
    """The rows of a problem of an installed package or of a file, which makes them itself."""

    kind: Literal["rows"] = Field(description="This section describes rows that the problem makes.")

    @property
    def context(self) -> int:
        """Return the tokens that a row counts as."""
        return 1


class SatData(Section):
    """Satisfiability problems with the trace of a DPLL solver as the answer to imitate."""

    kind: Literal["sat"] = Field(description="This section describes satisfiability problems.")
    variables: Range = Field(
        default=(4, 4), strict=False, description="Fewest and most variables of a formula, drawn evenly."
    )
    clause_ratio: ClauseRatio = Field(
        default=2.0, description="Clauses a variable, or the least and the most, drawn evenly for each formula."
    )
    clause_lengths: Range = Field(
        default=(1, 3), strict=False, description="Fewest and most literals of a clause, drawn evenly."
    )
    family: Family = Field(
        default="random", description="The family of the formulas; marginal pairs differ in one literal and in verdict."
    )
    skew: Skew = Field(default=1.0, description="Exponent of the skewed family: 0 is even.")
    names: Names | None = Field(
        default=None,
        description="Name the variables of each formula at random from 1 to this number, which is that of the most "
        "variables or more: a model then learns the tokens of variables that formulas of its training do not need.",
    )
    balanced: bool = Field(
        default=True,
        description="Keep as many satisfiable as unsatisfiable formulas, where `backtracking` is not given.",
    )
    backtracking: Annotated[list[BacktrackingShare], Field(max_length=20)] = Field(
        default=[],
        description="Shares of the rows by the number of decisions that the solver takes back, as "
        "[{at_least: 1, share: 0.5}]: where formulas are small, few others need search.",
    )
    pairs: Share = Field(
        default=0.0,
        description="Share of the rows that come as pairs: two formulas that differ in one literal, one of them "
        "satisfiable, the other not.",
    )
    files: list[Text] = Field(
        default=[],
        description="DIMACS files, folders (.cnf, .dimacs) or glob patterns (`**` for any depth): their formulas take "
        "the place of a family's. `variables` and `clause_lengths` say how large they may be.",
    )
    renamings: bool = Field(
        default=True,
        description="Train on the formulas of files again and again, each time with other names and signs of variables "
        "and another order of clauses. Held-out formulas are not among them under any name.",
    )
    solver_limit: int = Field(
        default=10_000,
        ge=1,
        le=10**9,
        description="Most decisions of the solver on a formula; those that need more are left out and counted.",
    )
    stages: Annotated[list[StageSection], Field(max_length=100)] = Field(
        default=[],
        description="A curriculum: other formulas from a number of tokens on, as "
        "[{after: 2_000_000, variables: [5, 6]}]. Rows are trained on in the order of the stages, each once.",
    )
    style: Literal["terse", "restated", "trail", "trail_steps"] = Field(
        default="restated",
        description="How a trace is written: each step alone (terse), with the simplified clauses (restated), or as "
        "the literals that hold, written again at each conflict (trail) or after each step (trail_steps).",
    )
    heuristic: Literal["first", "shortest", "two_sided", "lowest"] = Field(
        default="first",
        description="How the solver decides. `lowest` takes the lowest variable, also among unit clauses: the easiest "
        "to imitate in a trail style. `first` is the easiest in the others.",
    )
    prompt: Literal["clauses", "literals"] = Field(
        default="clauses",
        description="The tokens of a formula: its clauses, or its literals, where clauses are too many for a "
        "vocabulary. `literals` needs another style than `restated`.",
    )
    context: int = Field(default=62, ge=8, le=1 << 20, description="Tokens a row; longer examples are left out.")
    packing: bool | None = Field(
        default=None,
        description="Whether several examples share a row, without attention to each other. When not given they do in "
        "the trail styles, where the model's architecture can keep them apart.",
    )
    examples: Annotated[int, Field(ge=1, le=20_000_000)] | None = Field(
        default=None,
        description="Formulas to train on. When not given there are as many as the token budget takes, so that each is "
        "seen once: of up to 268 million tokens, which are trained on again where the budget is larger.",
    )
    held_out: int = Field(
        default=500,
        ge=2,
        le=20_000_000,
        description="Formulas kept for evaluation, distributed as those to train on; the held-out loss is theirs.",
    )
    held_out_sets: Annotated[list[HeldOutSetSection], Field(max_length=32)] = Field(
        default=[],
        description="More held-out formulas, each set with figures of its own in summary and report. No formula is in "
        "two sets, nor in a set and in training.",
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] | None = Field(
        default=None, description="Seeds the formulas; run.seed when not given."
    )
    retokenize: Retokenize = False
