"""The codecs by name, with what each declares; imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from barnraise.core.registry import Catalog, Entry, Option

HEADER_BYTES = 20


@dataclass(frozen=True)
class Traits:
    """What a codec declares.

    `max_bytes(options, size)`: the largest payload for a vector of `size` elements, header included; what a receiver
    allows before it allocates, and what a cost model counts.
    `lossless`: decoding gives back every bit, so that error feedback has nothing to keep.
    `sparse`: elements left out decode to zero; coordinate-wise robust rules see disjoint supports and trim to zero.
    """

    max_bytes: Callable[[Mapping[str, Any], int], int]
    lossless: bool = False
    sparse: bool = False


def kept(ratio: float, size: int) -> int:
    """How many of `size` elements top-k keeps: the nearest integer to ratio * size, at least one."""
    return min(size, max(1, round(ratio * size)))


def _topk_bytes(options: Mapping[str, Any], size: int) -> int:
    return HEADER_BYTES + kept(options["ratio"], size) * (6 if options["half_values"] else 8)


def _int8_bytes(options: Mapping[str, Any], size: int) -> int:
    block: int = options["block"]
    return HEADER_BYTES + -(-size // block) * 4 + size


CATALOG = Catalog(
    "codec",
    "barnraise.compression",
    [
        Entry(
            "none",
            "barnraise.compression.none:Float32",
            "float32 as it is",
            declares=Traits(lambda _, size: HEADER_BYTES + 4 * size, lossless=True),
        ),
        Entry(
            "fp16",
            "barnraise.compression.fp16:Float16",
            "half precision with one shared power of two: 2x smaller",
            declares=Traits(lambda _, size: HEADER_BYTES + 2 * size),
        ),
        Entry(
            "bf16",
            "barnraise.compression.bf16:BFloat16",
            "float32's upper half: 2x smaller, with less precision than fp16 and no shared exponent",
            declares=Traits(lambda _, size: HEADER_BYTES + 2 * size),
        ),
        Entry(
            "int8",
            "barnraise.compression.int8:BlockInt8",
            "8-bit integers with one scale a block: 4x smaller",
            options=(Option("block", int, 256, "Elements that share a scale.", minimum=8, maximum=65536),),
            declares=Traits(_int8_bytes),
        ),
        Entry(
            "topk",
            "barnraise.compression.topk:TopK",
            "the largest elements alone: 50x smaller at 1%",
            options=(
                Option("ratio", float, 0.01, "Share of the elements that is kept.", minimum=1e-9, maximum=1.0),
                Option("half_values", bool, False, "Send the kept values in half precision."),
            ),
            declares=Traits(_topk_bytes, sparse=True),
        ),
    ],
)
