"""The codecs by name, with their traits; imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from barnraise.core.registry import Catalog, Entry, Option

HEADER_BYTES = 20


@dataclass(frozen=True)
class Cost:
    """Time of coding on one core: nanoseconds an element of the vector, and a byte of the payload."""

    element: float
    byte: float = 0.0

    def seconds(self, size: int, num_bytes: int) -> float:
        """Return the seconds for a vector of `size` elements with a payload of `num_bytes` bytes."""
        return 1e-9 * (self.element * size + self.byte * num_bytes)


@dataclass(frozen=True)
class Traits:
    """The traits that a codec declares.

    `max_bytes(options, size)`: the largest payload for a vector of `size` elements, header included; the limit of a
    receiver before it allocates, and of a cost model. `lossless`: decoding gives back every bit, so that error feedback
    has nothing to keep. `sparse`: elements left out decode to zero: error feedback keeps them. `shared_support`: all
    workers leave out the same elements; where they do not, coordinate-wise robust rules see one value among zeros and
    trim it. `support_by_version`: so they do for updates of one version, and leave out others for the next. `portable`:
    decoding gives the same bits on every machine, as replicas of a version need. `encode`, `decode`: approximate times,
    for simulations.
    """

    max_bytes: Callable[[Mapping[str, Any], int], int]
    encode: Cost
    decode: Cost
    lossless: bool = False
    sparse: bool = False
    shared_support: bool = False
    support_by_version: bool = False
    portable: bool = True


def kept(ratio: float, size: int) -> int:
    """Return how many of `size` elements top-k keeps: the nearest integer to ratio * size, at least one."""
    return min(size, max(1, round(ratio * size)))


def _topk_bytes(options: Mapping[str, Any], size: int) -> int:
    return HEADER_BYTES + kept(options["ratio"], size) * (6 if options["half_values"] else 8)


def _block_bytes(width: int) -> Callable[[Mapping[str, Any], int], int]:
    def num_bytes(options: Mapping[str, Any], size: int) -> int:
        block: int = options["block"]
        return HEADER_BYTES + -(-size // block) * 4 + -(-size * width // 8)

    return num_bytes


def places_bytes(rows: int, chunk: int, kept: int) -> int:
    """Return the bytes of the places of `kept` elements in each of `rows` chunks (see `chunks`)."""
    low = low_bits(chunk, kept)
    return plane_bytes(rows * bitmap_bits(chunk, kept), 1) + plane_bytes(rows * kept, low)


def half_bytes(rows: int, count: int) -> int:
    """Return the bytes of `count` values in half precision."""
    return 2 * count


def two_bit_bytes(rows: int, count: int) -> int:
    """Return the bytes of `count` values in two bits, and of the pair of magnitudes of each of `rows` chunks."""
    return 4 * rows + plane_bytes(count, 2)


def plane_bytes(count: int, width: int) -> int:
    """Return the bytes of `count` integers of `width` bits (see `bits`)."""
    return width * -(-count // 8)


def low_bits(chunk: int, kept: int) -> int:
    """Return the bits of a place in a chunk that are written unchanged."""
    return (chunk // kept).bit_length() - 1


def bitmap_bits(chunk: int, kept: int) -> int:
    """Return the bits of one chunk's bitmap: a one for each place, a zero for each step of its high part."""
    return kept + (chunk >> low_bits(chunk, kept))


def _chunked_bytes(value_bytes: Callable[[int, int], int]) -> Callable[[Mapping[str, Any], int], int]:
    def num_bytes(options: Mapping[str, Any], size: int) -> int:
        chunk: int = options.get("chunk", DCT_TILE)
        rows, count = -(-size // chunk), kept(options["ratio"], chunk)
        return HEADER_BYTES + value_bytes(rows, rows * count) + places_bytes(rows, chunk, count)

    return num_bytes


def _entropy_coded_bytes(options: Mapping[str, Any], size: int) -> int:
    return HEADER_BYTES + 68 + int(-(-options["bits"] * size // 8))


def _low_rank_bytes(options: Mapping[str, Any], size: int) -> int:
    side: int = options["side"]
    rank: int = options["rank"]
    return HEADER_BYTES + -(-size // (side * side)) * 4 * side * rank


def _random_blocks_bytes(options: Mapping[str, Any], size: int) -> int:
    block: int = options["block"]
    num_blocks = -(-size // block)
    return HEADER_BYTES + 2 * block * (kept(options["ratio"], num_blocks) if num_blocks else 0)


DCT_TILE = 4096
POWERS = tuple(1 << power for power in range(6, 17))
_BLOCK = Option("block", int, 256, "Elements that share a scale.", minimum=8, maximum=65536)
_ROUNDING = Option(
    "rounding", str, "nearest", "`nearest`, or `stochastic`: right in the mean.", choices=("nearest", "stochastic")
)
_CHUNK = Option("chunk", int, 4096, "Elements of which the same share is kept.", choices=POWERS)


def _ratio(default: float, what: str = "elements") -> Option:
    return Option("ratio", float, default, f"Share of the {what} that is kept.", minimum=1e-9, maximum=1.0)


RESIDUAL = "int4"
"""The codec of a leaving worker's residual: dense, since no later contribution carries the rest."""

CATALOG = Catalog(
    "codec",
    "barnraise.compression",
    [
        Entry(
            "none",
            "barnraise.compression.none:Float32",
            "float32 as it is",
            declares=Traits(lambda _, size: HEADER_BYTES + 4 * size, Cost(1.0), Cost(1.3), lossless=True),
        ),
        Entry(
            "fp16",
            "barnraise.compression.fp16:Float16",
            "half precision with one shared power of two: 2x smaller",
            declares=Traits(lambda _, size: HEADER_BYTES + 2 * size, Cost(1.3), Cost(1.4)),
        ),
        Entry(
            "bf16",
            "barnraise.compression.bf16:BFloat16",
            "float32's upper half: 2x smaller, with less precision than fp16 and no shared exponent",
            declares=Traits(lambda _, size: HEADER_BYTES + 2 * size, Cost(1.2), Cost(1.2)),
        ),
        Entry(
            "int8",
            "barnraise.compression.block_integer:BlockInt8",
            "8-bit integers with one scale a block: 4x smaller",
            options=(_BLOCK, _ROUNDING),
            declares=Traits(_block_bytes(8), Cost(2.0), Cost(0.9)),
        ),
        Entry(
            "int4",
            "barnraise.compression.block_integer:BlockInt4",
            "4-bit integers with one scale a block: 7.8x smaller",
            options=(_BLOCK, _ROUNDING),
            declares=Traits(_block_bytes(4), Cost(2.8), Cost(1.6)),
        ),
        Entry(
            "topk",
            "barnraise.compression.topk:TopK",
            "the largest elements alone: 50x smaller at 1%",
            options=(_ratio(0.01), Option("half_values", bool, False, "Send the kept values in half precision.")),
            declares=Traits(_topk_bytes, Cost(1.8, 3.4), Cost(0.5, 0.9), sparse=True),
        ),
        Entry(
            "chunked_topk",
            "barnraise.compression.chunked_topk:ChunkedTopK",
            "the largest elements of each chunk, in half precision: 85x smaller at 64 of 4096",
            options=(_ratio(1 / 64), _CHUNK),
            declares=Traits(_chunked_bytes(half_bytes), Cost(4.3, 12.0), Cost(0.6, 7.4), sparse=True),
        ),
        Entry(
            "sparse_loco",
            "barnraise.compression.sparse_loco:SparseLoCo",
            "the largest elements of each chunk, in two bits: 195x smaller at 64 of 4096",
            options=(_ratio(1 / 64), _CHUNK),
            declares=Traits(_chunked_bytes(two_bit_bytes), Cost(3.2, 54.0), Cost(0.5, 23.0), sparse=True),
        ),
        Entry(
            "entropy_coded",
            "barnraise.compression.entropy_coded:EntropyCoded",
            "a few levels, the rarer ones in more bits: 40x smaller at 0.8 bits",
            options=(Option("bits", float, 0.8, "Bits of an element, in the mean.", minimum=0.3, maximum=4.0),),
            declares=Traits(_entropy_coded_bytes, Cost(36.0), Cost(5.0, 35.0), sparse=True),
        ),
        Entry(
            "dct_topk",
            "barnraise.compression.dct_topk:DCTTopK",
            "the largest cosine coefficients of each 4096 elements: 85x smaller at 64",
            options=(_ratio(1 / 64, "coefficients"),),
            declares=Traits(
                _chunked_bytes(half_bytes),
                Cost(9.0, 6.0),
                Cost(7.4, 7.5),
                sparse=True,
                shared_support=True,
                portable=False,
            ),
        ),
        Entry(
            "low_rank",
            "barnraise.compression.low_rank:LowRank",
            "a low-rank approximation of each side * side elements: 16x smaller at rank 4 of 128",
            options=(
                Option("rank", int, 4, "Columns of each factor.", minimum=1, maximum=64),
                Option("side", int, 128, "Rows and columns of each matrix.", choices=POWERS[:6]),
            ),
            declares=Traits(_low_rank_bytes, Cost(6.3), Cost(2.4), sparse=True, shared_support=True, portable=False),
        ),
        Entry(
            "random_blocks",
            "barnraise.compression.random_blocks:RandomBlocks",
            "blocks that a shared seed chooses, the same for all updates of a version: 128x smaller at 1/64",
            options=(
                _ratio(1 / 64, "blocks"),
                Option("block", int, 64, "Consecutive elements that are kept together.", minimum=1, maximum=65536),
            ),
            declares=Traits(
                _random_blocks_bytes,
                Cost(1.9, 3.0),
                Cost(1.8, 3.0),
                sparse=True,
                shared_support=True,
                support_by_version=True,
            ),
        ),
    ],
)
