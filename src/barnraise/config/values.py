"""The values of the run file's keys: types with their range, and their descriptions in messages and docs.

A name of a policy is text here: the key says of which family it is, and `plan.names` which names that family has.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from barnraise.core.registry import SHARE_LIMIT

USUAL_BATCH = 8
"""Rows of a local step where a run file gives none."""

MAX_COUNT = 2**53
"""Largest count of tokens or bytes: what JSON and the wire carry exactly."""


def _whole(value: object) -> object:
    """Accept 2e6 and 2000000.0 as whole numbers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _ascending(value: int | list[int]) -> int | list[int]:
    """Check that a list has each number once, the smallest first."""
    if isinstance(value, list) and any(low >= high for low, high in pairwise(value)):
        raise ValueError("not ascending")
    return value


def _words(text: str) -> dict[str, Any]:
    """Return the description of a pattern, for messages and docs."""
    return {"x-expected": text}


def _named(family: str, or_else: str = "") -> Any:
    """Declare a key that takes a name of `family`, and perhaps something else.

    `plan.names` lists the names.
    """
    article = "an" if family[0] in "aeiou" else "a"
    expected = f"the name of {article} {family}{f' or {or_else}' if or_else else ''}"
    extra: dict[str, Any] = {"x-names": family, **_words(expected), **({"x-else": or_else} if or_else else {})}
    return Field(min_length=1, max_length=4096, json_schema_extra=extra)


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Interval = Annotated[float, Field(ge=0.01, le=86_400)]  # workers refuse shorter ones
Share = Annotated[float, Field(ge=0, le=1)]
Milliseconds = Annotated[float, Field(ge=0, le=60_000)]
Loss = Annotated[float, Field(ge=0, le=0.5)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, BeforeValidator(_whole)]
Bytes = Annotated[int, Field(ge=1, le=MAX_COUNT), BeforeValidator(_whole)]
Attackers = Annotated[
    Annotated[int, Field(ge=0, le=1_000_000)] | Annotated[float, Field(ge=0, lt=SHARE_LIMIT)],
    BeforeValidator(_whole),
    Field(json_schema_extra=_words(f"a whole number from 0 to 1000000, or a share from 0 to below {SHARE_LIMIT}")),
]
Text = Annotated[str, Field(min_length=1, max_length=4096, json_schema_extra=_words("text"))]
Url = Annotated[
    str,
    Field(
        pattern=r"^https?://[^\s/]\S*$",
        max_length=4096,
        json_schema_extra=_words("a URL that begins with http:// or https://"),
    ),
]
Architecture = Annotated[str, _named("architecture", "another Hugging Face model type")]
AttackKind = Annotated[str, _named("attack")]
Codec = Annotated[str, _named("codec")]
DownlinkCodec = Annotated[str, _named("portable codec")]
FaultKind = Annotated[str, _named("fault")]
InnerOptimizer = Annotated[str, _named("inner optimizer")]
LinkText = Annotated[str, _named("link preset", "figures")]
OuterOptimizer = Annotated[str, _named("outer optimizer")]
Precision = Annotated[str, _named("precision")]
ProblemName = Annotated[str, _named("problem", "one of an installed package")]
Rule = Annotated[str, _named("aggregation rule")]
Schedule = Annotated[str, _named("schedule")]
Scheduler = Annotated[str, _named("scheduler")]
Weighting = Annotated[str, _named("staleness weighting")]
_Ratio = Annotated[float, Field(ge=0.1, le=1000)]
Range = tuple[Annotated[int, Field(ge=1, le=10_000)], Annotated[int, Field(ge=1, le=10_000)]]
ClauseRatio = Annotated[
    _Ratio | Annotated[tuple[_Ratio, _Ratio], Field(strict=False)],
    Field(json_schema_extra=_words("a number from 0.1 to 1000, or a list of two, the least and the most")),
]
RowLength = Annotated[int, Field(ge=8, le=1 << 20)]
RowLengths = Annotated[
    RowLength | Annotated[list[RowLength], Field(min_length=1, max_length=8)],
    AfterValidator(_ascending),
    Field(json_schema_extra=_words("a whole number from 8 to 1048576, or a list of 1 to 8 ascending ones")),
]
Name = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$",
        json_schema_extra=_words("a name of up to 64 letters, digits, '_', '.' and '-', a letter or digit first"),
    ),
]
Device = Annotated[
    str,
    Field(
        pattern=r"^(cpu|mps|cuda(:[0-9]{1,3})?|xpu(:[0-9]{1,3})?)$",
        json_schema_extra=_words("a torch device: cpu, cuda, cuda:N, mps or xpu"),
    ),
]
Options = Annotated[
    dict[str, bool | int | float | str | None],
    Field(json_schema_extra=_words("a section of further options")),
]
