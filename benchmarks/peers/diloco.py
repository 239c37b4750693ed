"""Plain DiLoCo (Douillard et al. 2023) over gloo: H local steps of AdamW, then the mean of the float32 pseudo-gradients
goes through an outer Nesterov step (rate 0.7, momentum 0.9)."""

from __future__ import annotations

import torch
import torch.distributed as dist
from common import Job, Worker, run


def train(job: Job, rank: int) -> None:
    worker = Worker(job, rank)
    dist.init_process_group("gloo", f"tcp://{job.addresses[0]}:29500", rank=rank, world_size=job.workers)
    inner = worker.adamw()
    shared = torch.nn.utils.parameters_to_vector(worker.parameters).detach().requires_grad_()
    outer = torch.optim.SGD([shared], lr=0.7, momentum=0.9, nesterov=True)
    dist.barrier()
    worker.start()
    while not worker.done:
        for _ in range(job.local_steps):
            inner.zero_grad()
            worker.gradients()
            inner.step()
        with torch.no_grad():
            shared.grad = shared - torch.nn.utils.parameters_to_vector(worker.parameters)
        dist.all_reduce(shared.grad)
        shared.grad /= job.workers
        outer.step()
        torch.nn.utils.vector_to_parameters(shared.detach().clone(), worker.parameters)
        worker.exchanged()
    worker.finish()


if __name__ == "__main__":
    run(train)
