"""Code that the workers of all peers share: the job, the model, the rows, the pace, the log.

The benchmark starts a worker as `python PEER.py JOB.json RANK` in its own network namespace. The worker runs in the
benchmark's virtual environment, so this module does not import barnraise. It writes lines of JSON to its standard
output: {"event", "time", ...}, with times on the machine's monotonic clock. It trains until its tokens are done or it
is killed.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEVICE = "wan0"
"""The network device of every namespace."""

ADAMW: dict[str, Any] = {"betas": [0.9, 0.99], "weight_decay": 0.01}
"""AdamW of every side of every comparison. With 0.95 and 0.1, steps of few rows do 4 to 5% worse
(docs/research/experiments.md)."""


@dataclass(frozen=True)
class Job:
    """The job that every worker gets. `addresses` are the workers', in the order of their ranks."""

    folder: str  # `model/` (Hugging Face), `rows.npy` (uint16 [n, context]); snapshots go there
    addresses: list[str]
    tokens: int  # each worker ends after these
    seconds: float  # after which it is killed
    speed: float  # tokens a second of each worker
    batch: int  # rows a step
    local_steps: int
    learning_rate: float
    schedule: str  # "constant", or "cosine" over the worker's tokens, after 5% of warm-up and down to 10%
    seed: int
    snapshots: int  # over the run
    options: dict[str, Any] = field(default_factory=dict)  # the peer's own

    @property
    def workers(self) -> int:
        return len(self.addresses)


def run(train: Callable[[Job, int], None]) -> None:
    """Train with the job and the rank of the command line.

    After an error the process ends at once and does not wait for threads.
    """
    path, rank = sys.argv[1:]
    os.environ["GLOO_SOCKET_IFNAME"] = DEVICE  # gloo would otherwise look the host's name up
    try:
        train(Job(**json.loads(Path(path).read_text())), int(rank))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def say(event: str, **more: Any) -> None:
    print(json.dumps({"event": event, "time": time.monotonic(), **more}), flush=True)


class Worker:
    """The model and the rows of one worker, trained at a given pace."""

    def __init__(self, job: Job, rank: int) -> None:
        import numpy as np
        import torch
        from transformers import AutoModelForCausalLM, logging

        torch.set_num_threads(1)
        torch.set_flush_denormal(True)
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.job, self.rank, self.tokens = job, rank, 0
        self.model = AutoModelForCausalLM.from_pretrained(Path(job.folder) / "model", local_files_only=True).train()
        rows = np.load(Path(job.folder) / "rows.npy", mmap_mode="r")
        order = np.random.default_rng(job.seed).permutation(len(rows))
        self._rows, self._mine, self._next = rows, order[rank :: job.workers], 0
        self._inner: Any = None
        self._busy = 0.0  # CPU seconds of the last backward pass
        self._snapshots, self._began = 0, 0.0

    @property
    def parameters(self) -> list[Any]:
        return list(self.model.parameters())

    def adamw(self, parameters: Any = None) -> Any:
        """The inner optimizer of every peer."""
        import torch

        chosen = self.model.parameters() if parameters is None else parameters
        self._inner = torch.optim.AdamW(chosen, lr=self.job.learning_rate, **ADAMW)
        return self._inner

    def _set_rate(self) -> None:
        done = (self.tokens + self.job.batch) / self.job.tokens
        if self.job.schedule == "cosine":
            share = (
                done / 0.05 if done < 0.05 else 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, (done - 0.05) / 0.95)))
            )
            for group in self._inner.param_groups:
                group["lr"] = self.job.learning_rate * share

    @property
    def done(self) -> bool:
        return self.tokens >= self.job.tokens

    def start(self) -> None:
        """Report that the setup is complete, and start the clock."""
        self._began = time.monotonic()
        say("start")

    def gradients(self, module: Any = None) -> None:
        """One forward and backward pass, through `module` where it wraps the model; gradients are clipped.

        The worker plays a slower machine: it sleeps for the seconds that a batch lacks, before the backward pass, in
        which DDP already exchanges. The last pass tells how long the backward one will take.
        """
        import torch

        began = time.monotonic()
        self._set_rate()
        mine, batch = self._mine, self.job.batch
        chosen = mine[[(self._next + i) % len(mine) for i in range(batch)]]
        self._next += batch
        tokens = torch.from_numpy(self._rows[chosen].astype("int64"))
        loss = (module or self.model)(input_ids=tokens, labels=tokens, use_cache=False).loss
        time.sleep(max(0.0, tokens.numel() / self.job.speed - (time.monotonic() - began) - self._busy))
        busy = time.thread_time()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._busy = time.thread_time() - busy
        self.tokens += tokens.numel()

    def exchanged(self) -> None:
        """Report that the shared model holds all that this worker has trained so far."""
        say("progress", tokens=self.tokens)
        job = self.job
        share = max(self.tokens / job.tokens, (time.monotonic() - self._began) / job.seconds)
        if self.rank == 0 and int(share * job.snapshots) > self._snapshots:
            self._snapshots = int(share * job.snapshots)
            self.snapshot()

    def snapshot(self) -> None:
        """Keep the parameters: their loss is measured after the run, which it must not slow down."""
        import numpy as np
        import torch

        name = f"snapshot-{self.tokens}.npy"
        vector = torch.cat([parameter.detach().flatten() for parameter in self.parameters])
        np.save(Path(self.job.folder) / name, vector.numpy())
        say("snapshot", tokens=self.tokens, file=name)

    def finish(self) -> None:
        """Tell that the tokens are done, and stay until killed: others may still need this worker."""
        if self.rank == 0:
            self.snapshot()
        say("done", tokens=self.tokens)
        while True:
            time.sleep(60)
