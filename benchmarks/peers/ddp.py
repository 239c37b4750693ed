"""PyTorch's DistributedDataParallel over gloo: every step, every gradient, in full precision."""

from __future__ import annotations

import torch.distributed as dist
from common import Job, Worker, run
from torch.nn.parallel import DistributedDataParallel


def train(job: Job, rank: int) -> None:
    worker = Worker(job, rank)
    dist.init_process_group("gloo", f"tcp://{job.addresses[0]}:29500", rank=rank, world_size=job.workers)
    module = DistributedDataParallel(worker.model)
    optimizer = worker.adamw()
    dist.barrier()
    worker.start()
    while not worker.done:
        optimizer.zero_grad()
        worker.gradients(module)
        optimizer.step()
        worker.exchanged()
    worker.finish()


if __name__ == "__main__":
    run(train)
