"""The section of a run file about secure aggregation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from barnraise.config.section import Section
from barnraise.config.values import Positive


class SecureAggregationSection(Section):
    """Sums of updates under masks: the controller reads the sum of a group, and no single update."""

    model_config = ConfigDict(json_schema_extra={"x-expected": "a section of keys: trustees, colluding, group"})

    trustees: int = Field(default=4, ge=4, le=64, description="Machines that hold the seeds of masks (m).")
    colluding: int = Field(
        default=1,
        ge=1,
        le=21,
        description="Trustees that may pool what they hold without learning an update (t); m is 3 t + 1 or more.",
    )
    group: Annotated[int, Field(ge=2, le=1024)] | Literal["all"] | None = Field(
        default=None,
        description="Nodes whose updates are summed together, at least (g). A robust rule reads the sums of groups: it "
        "withstands fewer than n / 2 g liars among n nodes, and a node is hidden among g. `all`: the nodes of a "
        "version are one group. When not given, 2 under a rule that needs rows, else all.",
    )
    least: Annotated[int, Field(ge=2, le=1024)] | None = Field(
        default=None,
        description="Nodes of a version, at least (K_min). When not given, as many as the rule needs groups, times "
        "the group; 2 where all are one group.",
    )
    most: int = Field(default=64, ge=2, le=1024, description="Nodes that are summed together, at most.")
    value_bits: Annotated[int, Field(ge=4, le=16)] | None = Field(
        default=None,
        description="Bits of an element of an update, before its mask. When not given 12, and 16 where members share "
        "the noise (`differential_privacy.honest`).",
    )
    limit: Positive | None = Field(
        default=None,
        description="Magnitude at which an element of an update saturates. When not given, twice the learning rate "
        "times local_steps, which suits an adaptive inner optimizer; with noise on updates, their clip and room for "
        "the noise.",
    )
    patience: Positive = Field(
        default=300.0,
        description="Seconds for which a closed version waits for trustees; then its updates are given up, and their "
        "rows are done again.",
    )
