"""Time exchanges of given bytes between the workers of an emulated network, over gloo and without any training.

The benchmark starts it as `python exchange.py JOB.json RANK` in each network namespace; rank 0 is the host. A "ring"
is an all-reduce among the workers; "up" and "down" carry a payload from each worker to the host, and back. Rank 1 tells
the seconds of each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from common import DEVICE, say


def exchange(kind: str, num_bytes: int, rank: int, workers: dist.ProcessGroup) -> None:
    """Move the bytes once, as the process of this rank does it."""
    payload = torch.zeros(num_bytes, dtype=torch.uint8)
    others = range(1, dist.get_world_size())
    if kind == "ring":
        if rank:
            dist.all_reduce(payload, group=workers)
        return
    sender = bool(rank) == (kind == "up")
    peers = [0] if rank else list(others)
    move: Callable[..., Any] = dist.isend if sender else dist.irecv
    for waiting in [move(payload if sender else torch.empty_like(payload), peer) for peer in peers]:
        waiting.wait()


def main() -> None:
    path, rank = sys.argv[1], int(sys.argv[2])
    job = json.loads(Path(path).read_text())
    os.environ["GLOO_SOCKET_IFNAME"] = DEVICE
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://{job['host']}:29500", rank=rank, world_size=job["workers"] + 1)
    workers = dist.new_group(list(range(1, job["workers"] + 1)))
    for kind, num_bytes in job["exchanges"]:
        exchange(kind, 1000, rank, workers)  # connections open at the first use
        dist.barrier()
        began = time.perf_counter()
        exchange(kind, num_bytes, rank, workers)
        dist.barrier()
        if rank == 1:
            say("exchange", seconds=time.perf_counter() - began)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
