"""The section of a run file about homomorphic encryption."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from barnraise.config.section import Section
from barnraise.config.values import Positive

KEY_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}/[0-9a-f]{32}$"
"""The name of a key and its id, as `barnraise keys make` prints them."""


class HomomorphicEncryptionSection(Section):
    """Encrypted updates: the controller adds them without a key, and publishes a model that key holders alone read."""

    model_config = ConfigDict(json_schema_extra={"x-expected": "a section of keys: key, nodes, bound, key_file"})

    key: Annotated[str, Field(pattern=KEY_PATTERN)] = Field(
        description="The name of the workers' key and its id, as `barnraise keys make` prints them. The secret key "
        "itself is in a file that the controller does not get."
    )
    nodes: Annotated[int, Field(ge=1, le=4096)] | None = Field(
        default=None,
        description="Each update moves the model by one over this number; the controller cannot divide a sum. When "
        "not given, aggregation.buffer_size where it is a number, else the number of local workers.",
    )
    bound: Positive = Field(
        default=4.0,
        description="A parameter moves by at most half of this over the run, and by a quarter in one update. Each "
        "update is rounded to 2^-24 to 2^-28 of it, by the number of updates in the run.",
    )
    key_file: str = Field(
        default="", description="The key file of the local workers of `train`; other workers get it by `join --key`."
    )
