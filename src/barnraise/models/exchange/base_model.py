"""The frozen base of an exchange: the types in which a worker holds it; torch-free.

The matrices of the linear layers have the type. Embeddings, the output layer and their like have two bytes a value, or
four in float32; norms and biases are float32. Every worker computes with the values that the type stands for, in the
precision of the run: machines differ by rounding alone, whatever the type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from barnraise.core.registry import Option

BLOCK = 64
"""Values of a row that share a scale in nf4 (Dettmers et al. 2023, "QLoRA", section 3)."""

AT_ONCE = 1 << 26
"""Values of a matrix that an accelerator widens at a time."""


@dataclass(frozen=True)
class BaseType:
    """A type of the base: the bytes of a row of `n` values of a linear layer's matrix, and of any other matrix's value.

    `linear` is false for the type in which linear layers stay as they are. `widening`: the bytes that a value takes for
    a while where an accelerator widens it to bfloat16.
    """

    row_bytes: Callable[[int], int]
    other: int = 2
    linear: bool = True
    widening: int = 0


FLOAT32 = "float32"

BASE_TYPES: Mapping[str, BaseType] = {
    FLOAT32: BaseType(lambda n: 4 * n, other=4, linear=False),
    "bfloat16": BaseType(lambda n: 2 * n),
    "int8": BaseType(lambda n: n + 4, widening=2),  # and a scale
    "nf4": BaseType(lambda n: -(-n // BLOCK) * (BLOCK // 2 + 4), widening=8),  # and a scale for each block
}

BASE_OPTION = Option(
    "base", str, FLOAT32, "Type in which a worker holds the frozen parameters.", choices=tuple(BASE_TYPES)
)
