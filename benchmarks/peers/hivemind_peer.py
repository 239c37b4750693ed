"""hivemind's Optimizer. The job's options say which way:

    {"mode": "sync", "compression": "float16"}     gradients are accumulated up to a large batch, then averaged
    {"mode": "local", "compression": "float16"}    every step is applied at once; parameters are averaged now and then,
                                                   in the background (its default)

In both the batch that ends an epoch is `local_steps` (sync: `accumulate`) batches of every worker.
"""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

import hivemind
from common import Job, Worker, run, say
from hivemind.compression import Float16Compression, Uniform8BitQuantization
from hivemind.utils import get_dht_time

CODECS = {"float16": Float16Compression, "uniform8": Uniform8BitQuantization}
MATCHMAKING_SECONDS = 5.0
"""How long peers look for each other before an exchange. Its manual: 3 to 5 s for few peers nearby, 10 to 15 s for many
or over the internet; here are few, and the default of 15 s would be half of an epoch."""

LONGEST_EXCHANGE = 300.0
"""The default of 60 s gives up over a slow link."""

LONGEST_SILENCE = 60.0
"""Between two chunks of an exchange; the default, the matchmaking time, cuts exchanges over a slow link short."""

PORT = 29520


def train(job: Job, rank: int) -> None:
    worker = Worker(job, rank)
    dht = start_dht(job, rank)
    optimizer = make_optimizer(job, worker, dht)
    wait_for_all(job, dht, rank)
    worker.start()
    epoch = 0
    local = job.options["mode"] == "local"
    while not worker.done:
        worker.gradients()
        optimizer.step()
        optimizer.zero_grad()
        if local or optimizer.local_epoch > epoch:
            worker.exchanged()
        if optimizer.local_epoch > epoch:
            epoch = optimizer.local_epoch
            say("epoch", number=epoch, tokens=worker.tokens)
    worker.finish()


def start_dht(job: Job, rank: int) -> hivemind.DHT:
    """Start the DHT; all other workers connect to the first worker."""
    known = Path(job.folder) / "first-peer"
    while rank > 0 and not known.exists():
        time.sleep(0.2)
    dht = hivemind.DHT(
        host_maddrs=[f"/ip4/{job.addresses[rank]}/tcp/{PORT}"],
        initial_peers=known.read_text().split() if rank > 0 else None,
        use_relay=False,
        use_auto_relay=False,
        start=True,
    )
    if rank == 0:
        partial = known.with_suffix(".partial")
        partial.write_text("\n".join(str(address) for address in dht.get_visible_maddrs()))
        partial.rename(known)
    return dht


def make_optimizer(job: Job, worker: Worker, dht: hivemind.DHT) -> hivemind.Optimizer:
    local = job.options["mode"] == "local"
    batches = job.local_steps if local else job.options["accumulate"]
    codec = CODECS[job.options["compression"]]()
    averaging: dict[str, Any] = {"state_averaging_compression": codec}
    if not local:
        averaging["grad_compression"] = codec
    return hivemind.Optimizer(
        dht=dht,
        run_id="peers",
        batch_size_per_step=job.batch,
        target_batch_size=batches * job.batch * job.workers,
        params=worker.model.parameters(),
        optimizer=functools.partial(worker.adamw),
        use_local_updates=local,
        matchmaking_time=MATCHMAKING_SECONDS,
        averaging_timeout=LONGEST_EXCHANGE,
        next_chunk_timeout=LONGEST_SILENCE,
        averager_opts={"target_group_size": job.workers},
        verbose=True,
        **averaging,
    )


def wait_for_all(job: Job, dht: hivemind.DHT, rank: int) -> None:
    """Wait until every worker is ready to train."""
    while not dht.store("ready", subkey=rank, value=True, expiration_time=get_dht_time() + 600):
        time.sleep(0.5)
    while True:
        found = dht.get("ready", latest=True)
        if found is not None and len(found.value) >= job.workers:
            return
        time.sleep(0.5)


if __name__ == "__main__":
    run(train)
