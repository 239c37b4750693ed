"""The sections of a run file about training less than the whole model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from barnraise.config.section import Section
from barnraise.config.values import Positive, Text


class AdapterSection(Section):
    """Low-rank adapters beside the model's linear layers (LoRA), through peft: only they are trained and sent."""

    model_config = ConfigDict(json_schema_extra={"x-expected": "a section of keys, with `kind: lora`"})

    kind: Literal["lora"] = Field(default="lora", description="The kind of adapter.")
    rank: int = Field(default=16, ge=1, le=4096, description="Rank of the adapters (peft's r).")
    alpha: Positive | None = Field(
        default=None, description="Scale of an adapter's output times its rank; twice the rank when not given."
    )
    targets: Literal["all-linear"] | Annotated[list[Text], Field(min_length=1, max_length=64)] = Field(
        default="all-linear",
        description="The layers with an adapter, by the last part of their names (q_proj, v_proj); all of the blocks' "
        "linear layers when not given.",
    )
    dropout: Annotated[float, Field(ge=0, le=0.9)] = Field(default=0.0, description="Dropout of an adapter's input.")
    train: Literal["both", "b_only"] = Field(
        default="both",
        description="The trained matrices. With b_only A stays as the run's seed draws it: half of the bytes travel, "
        "and the average of B is the average of the updates, which it is not where A and B are averaged apart.",
    )
    base: Literal["float32", "bfloat16", "int8", "nf4"] = Field(
        default="float32",
        description="The type in which machines hold the model beside the adapters. int8 and nf4 (4 bits) change the "
        "loss a little.",
    )


class StopEarlySection(Section):
    """The end of a run before its tokens are used, once the held-out loss no longer falls."""

    model_config = ConfigDict(json_schema_extra={"x-expected": "a section of keys: patience, least_gain"})

    patience: int = Field(default=3, ge=1, le=10_000, description="Evaluations in a row without a gain.")
    least_gain: Annotated[float, Field(ge=0, le=100)] = Field(
        default=0.0, description="Nats a token by which a loss must be below the lowest one to be a gain."
    )


class PartSection(Section):
    """Layers of the model that are trained and sent in full; the others stay."""

    model_config = ConfigDict(json_schema_extra={"x-expected": "a section of keys: layers, embeddings"})

    layers: Annotated[list[int], Field(max_length=1000)] = Field(
        default_factory=list, description="Numbers of the trained blocks, from 0; negative ones count from the last."
    )
    embeddings: bool = Field(
        default=False, description="Train what is in no block too: embeddings, the last norm, the output layer."
    )
