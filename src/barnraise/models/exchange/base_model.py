"""The frozen base of an exchange: the types in which a worker holds it; torch-free."""

from __future__ import annotations

from collections.abc import Mapping

from barnraise.core.registry import Option

BASE_BYTES: Mapping[str, float] = {"float32": 4.0, "bfloat16": 2.0, "int8": 1.0}
"""Bytes of a frozen parameter by the type in which a worker holds it.

In int8 are the linear layers' matrices alone, with a float32 scale a row; the rest is bfloat16.
"""

INT8 = "int8"

BASE_OPTION = Option(
    "base", str, "float32", "Type in which a worker holds the frozen parameters.", choices=tuple(BASE_BYTES)
)
