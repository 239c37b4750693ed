"""The sections within a data section of satisfiability problems."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from barnraise.config.section import Section
from barnraise.config.values import MAX_COUNT, ClauseRatio, Count, Range, Share, Text

Family = Literal["random", "skewed", "marginal", "crafted"]
Skew = Annotated[float, Field(ge=0, le=10)]
Names = Annotated[int, Field(ge=1, le=10_000)]
Backtracks = Annotated[int, Field(ge=0, le=1_000_000)]


class BacktrackingSection(Section):
    """Formulas by the number of decisions that the solver takes back."""

    at_least: Backtracks = Field(default=0, description="Fewest decisions that the solver takes back.")
    at_most: Backtracks | None = Field(
        default=None, description="Most decisions that it takes back; any when not given."
    )


class BacktrackingShare(BacktrackingSection):
    """A share of the rows to train on, by the number of decisions that the solver takes back."""

    share: Annotated[float, Field(gt=0, le=1)] = Field(
        description="Share of the rows. All shares sum to at most 1; the rest of the rows is as it comes."
    )
    satisfiable: Share | None = Field(
        default=None, description="Share of satisfiable formulas among them; as they come when not given."
    )


class StageSection(Section):
    """Formulas to train on from a number of tokens on; keys that are not given have the value that they have in `data`.

    A stage ends where the next one begins. The formulas before the first stage are those of `data`.
    """

    after: Count = Field(ge=0, le=MAX_COUNT, description="Tokens of the run after which the stage begins; 0 for none.")
    variables: Range | None = Field(default=None, strict=False, description="Fewest and most variables.")
    clause_ratio: ClauseRatio | None = Field(default=None, description="Clauses a variable.")
    clause_lengths: Range | None = Field(
        default=None, strict=False, description="Fewest and most literals of a clause."
    )
    family: Family | None = Field(default=None, description="The family of the formulas.")
    skew: Skew | None = Field(default=None, description="Exponent of the skewed family: 0 is even.")
    names: Names | None = Field(default=None, description="Largest number of a variable's random name.")
    balanced: bool | None = Field(default=None, description="Keep as many satisfiable as unsatisfiable formulas.")
    backtracking: Annotated[list[BacktrackingShare], Field(max_length=20)] | None = Field(
        default=None, description="Shares of the rows by the number of decisions that the solver takes back."
    )
    pairs: Share | None = Field(default=None, description="Share of the rows that come as pairs with both verdicts.")
    files: list[Text] | None = Field(default=None, description="DIMACS files, folders or glob patterns.")
    renamings: bool | None = Field(default=None, description="Rename the variables of files' formulas each time.")


class HeldOutSetSection(Section):
    """Held-out formulas with figures of their own; keys that are not given have the value that they have in `data`."""

    name: Text = Field(description="The name of the set in summaries and reports.")
    formulas: Annotated[int, Field(ge=1, le=10_000)] = Field(default=500, description="Number of formulas.")
    variables: Range | None = Field(default=None, strict=False, description="Fewest and most variables.")
    clause_ratio: ClauseRatio | None = Field(default=None, description="Clauses a variable.")
    clause_lengths: Range | None = Field(
        default=None, strict=False, description="Fewest and most literals of a clause."
    )
    family: Family | None = Field(default=None, description="The family of the formulas.")
    skew: Skew | None = Field(default=None, description="Exponent of the skewed family: 0 is even.")
    names: Names | None = Field(default=None, description="Largest number of a variable's random name.")
    backtracking: BacktrackingSection | None = Field(
        default=None, description="The decisions that the solver takes back; any number when not given."
    )
    balanced: bool | None = Field(default=None, description="Keep as many satisfiable as unsatisfiable formulas.")
    files: list[Text] = Field(
        default=[], description="DIMACS files, folders or glob patterns, instead of formulas of a family."
    )
