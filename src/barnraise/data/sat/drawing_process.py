"""A process that draws blocks of formulas for another one.

Run as `python -m barnraise.data.sat.drawing_process PARENT`: PARENT is the number of the process that starts it, with
which it ends. The first line of standard input is a `BlockPlan`, each further one the number of a block. For each it
writes `HEAD`, the rows and the ids of a `PackedBlock`; the numbers of the head are -1 where it cannot draw the block.
"""

from __future__ import annotations

import struct
import sys

from barnraise.core.processes import die_with_parent
from barnraise.data.sat.blocks import BlockPlan, Blocks
from barnraise.data.sat.packed_blocks import PackedBlock

HEAD = struct.Struct("<ii")
"""The number of rows and of token ids that follow."""

FAILED = HEAD.pack(-1, -1)


def main() -> None:
    """Draw blocks until standard input ends."""
    die_with_parent(int(sys.argv[1]))
    orders, blocks = sys.stdin.buffer, sys.stdout.buffer
    drawn = Blocks(BlockPlan.decode(orders.readline()))
    for line in orders:
        blocks.write(_reply(drawn, int(line)))
        blocks.flush()


def _reply(blocks: Blocks, number: int) -> bytes:
    try:
        packed = PackedBlock.of(blocks.block(number))
    except Exception:  # the other process draws the block itself, and raises it where its user sees it
        return FAILED
    return HEAD.pack(len(packed.rows), len(packed.ids)) + packed.rows.tobytes() + packed.ids.tobytes()


if __name__ == "__main__":
    main()
