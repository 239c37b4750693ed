"""torchft's DiLoCo: the lighthouse and the first worker share a machine; one replica group a worker, one fragment,
float32 pseudo-gradients in buckets, outer Nesterov 0.7/0.9.

All replicas start from the same parameters, so nothing is copied at the start (`init_sync=False`, as its manual says).
"""

from __future__ import annotations

from datetime import timedelta

import torch
from common import Job, Worker, run
from torch.distributed import TCPStore
from torchft import Manager, ProcessGroupGloo
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo

LIGHTHOUSE, STORE = 29510, 29511
PATIENCE = timedelta(minutes=10)
"""For everything: its default of 60 s would end an exchange over a slow link."""


def train(job: Job, rank: int) -> None:
    worker = Worker(job, rank)
    own = job.addresses[rank]
    lighthouse = None
    if rank == 0:
        lighthouse = LighthouseServer(
            bind=f"[::]:{LIGHTHOUSE}", min_replicas=job.workers, join_timeout_ms=60_000, heartbeat_timeout_ms=60_000
        )
    store = TCPStore(own, STORE, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=PATIENCE),
        load_state_dict=worker.model.load_state_dict,
        state_dict=worker.model.state_dict,
        min_replica_size=job.workers,
        use_async_quorum=False,
        timeout=PATIENCE,
        quorum_timeout=PATIENCE,
        connect_timeout=PATIENCE,
        rank=0,
        world_size=1,
        store_addr=own,
        store_port=store.port,
        lighthouse_addr=f"http://{job.addresses[0]}:{LIGHTHOUSE}",
        replica_id=f"worker_{rank}",
        hostname=own,
        init_sync=False,
    )
    inner = worker.adamw()
    outer = torch.optim.SGD(worker.model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    worker.start()
    with DiLoCo(manager, [worker.model], inner, outer, sync_every=job.local_steps, use_bucketization=True):
        steps = rounds = 0
        while not worker.done:
            inner.zero_grad()
            worker.gradients()
            inner.step()  # the last of a round exchanges
            steps += 1
            if steps % job.local_steps == 0:
                if manager.current_step() == rounds:
                    raise RuntimeError("torchft discarded an exchange: see its messages above")
                rounds = manager.current_step()
                worker.exchanged()
    worker.finish()
    del lighthouse


if __name__ == "__main__":
    run(train)
