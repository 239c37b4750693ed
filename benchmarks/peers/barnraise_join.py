"""`barnraise join` at the pace of the other peers' workers: `python barnraise_join.py TOKENS_PER_SECOND INVITE ...`.

Runs in barnraise's own environment. Only the training step is paced; all else is the program that users start.
"""

from __future__ import annotations

import json
import sys
import time

from barnraise.cli.main import main
from barnraise.data.batches import Batch
from barnraise.training.local import LocalTrainer


def pace(speed: float) -> None:
    """Make every local step take as long as on a machine that trains `speed` tokens a second."""
    step = LocalTrainer.step

    def paced(self: LocalTrainer, batch: Batch, learning_rate: float) -> float | None:
        began = time.monotonic()
        if learning_rate > 0.0 and not told:  # a rate of zero is barnraise measuring the machine
            told.append(began)
            print(json.dumps({"event": "start", "time": began}), flush=True)
        loss = step(self, batch, learning_rate)
        time.sleep(max(0.0, batch["input_ids"].size / speed - (time.monotonic() - began)))
        return loss

    told: list[float] = []
    LocalTrainer.step = paced  # type: ignore[method-assign]


if __name__ == "__main__":
    pace(float(sys.argv[1]))
    sys.argv[1:] = ["join", *sys.argv[2:]]
    main()
