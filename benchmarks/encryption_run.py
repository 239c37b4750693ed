"""Measure encrypted runs of real processes: processor time and bytes of an update beside runs in clear, and errors.

    python benchmarks/encryption_run.py [--repeats 3] [--updates 4] [--tokens 1024,4096]

`barnraise train` with two workers trains B matrices of adapters (LoRA of rank 8 on all linear layers) beside a frozen
GPT-2 of 6 layers of 256, on the bytes of this repository's documentation. The side in clear and the encrypted one play
in turns, as `masking_run.py` plays them: processor time of all processes by role, divided by the updates, without the
start and the end of processes. *added* is the time of all encrypted over that in clear, less one. The target is 20%.

*error*: the benchmark opens every kept update of the encrypted run with the key. It compares the decrypted newest
version with their sum, in float64. A value of an update is rounded by at most half a step before it is encrypted:
*most* is the norm of half a step in each value over the norm of the sum, for all updates. The target is 1e-4.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from pathlib import Path
from typing import Any

import _machine
import numpy as np
from masking_run import CONTEXT, TINY, Seen, play, told

from barnraise.assembly.opening import terms_of
from barnraise.ledger import Checkpoints, Ledger, RunDirectory, VersionClosed
from barnraise.models.config import describe
from barnraise.models.exchange.catalog import CATALOG
from barnraise.models.exchange.record import Exchange
from barnraise.privacy.encryption import keys
from barnraise.privacy.encryption.cipher import KeyHolder
from barnraise.privacy.encryption.digits import from_digits
from barnraise.privacy.encryption.envelope import decode
from barnraise.wire.manifest import ExchangeName

MODEL = {"hidden_size": 256, "num_layers": 6, "num_heads": 4}
WORKERS, BATCH_TOKENS = 2, 512
MOST_ERROR = 1e-4
VOCABULARY = 258  # bytes
ADAPTER = {"kind": "lora", "rank": 8, "train": "b_only"}
CONTROLLER = {"buffer_size": WORKERS, "checkpoint_seconds": 1e6, "keep_payloads": True}


class Errors:
    """The errors of the newest checkpoints of encrypted runs, read with the key."""

    def __init__(self, key: keys.SecretKey) -> None:
        self.key, self.told = key, list[str]()

    def look(self, folder: Path) -> None:
        """Compare the newest checkpoint of a run with the sum of its opened updates."""
        run = RunDirectory(folder)
        terms, checkpoint = terms_of(run), Checkpoints(run.checkpoints).load_latest().checkpoint
        assert terms is not None
        assert checkpoint is not None
        agreement = terms.agreement(exchanged())
        holder, exact, updates = KeyHolder(self.key, agreement), np.zeros(agreement.values), 0
        digits = checkpoint.tensors("parameters")["parameters"].numpy()
        with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
            for _, decision in ledger.replay():
                if isinstance(decision, VersionClosed) and decision.version <= checkpoint.manifest.version:
                    for number in decision.contributions:
                        exact += holder.decrypt(decode(ledger.read(number), agreement, str(number), fresh=True))
                        updates += 1
        found = from_digits(digits, agreement)
        assert found is not None
        assert found.header.terms == updates
        norm = float(np.linalg.norm(exact))
        error = float(np.linalg.norm(holder.decrypt(found) - exact)) / norm
        most = updates * agreement.budget.step / 2 * math.sqrt(agreement.values) / norm
        self.told.append(f"{agreement.values:,} values, {updates} updates: error {error:.1e}, most {most:.1e}")
        assert error + most <= MOST_ERROR, "the target is missed"


def exchanged() -> int:
    """Return the number of trained values of the run that `model` names."""
    options = CATALOG.resolve("lora", {"rank": ADAPTER["rank"], "train": ADAPTER["train"]})
    config = describe({"architecture": "gpt2", "config": MODEL}, VOCABULARY, CONTEXT)
    return Exchange.of(config, ExchangeName("lora", options, ())).trained


def sides(key: keys.SecretKey, file: Path) -> dict[str, dict[str, Any]]:
    """Return the side in clear and the encrypted one."""
    privacy = {
        "homomorphic_encryption": {"key": key.name, "key_file": str(file)},
        "overhead_limit": 1000,  # short tasks are measured, too
    }
    both = {"controller": CONTROLLER, "evaluation": {"by": "workers", "times": 1, "rows": 8}}
    adapters = {"adapter": ADAPTER, "tokens": 10_000_000}
    return {
        "float32, in clear": {"training": adapters, "sections": both},
        "encrypted": {"training": adapters, "sections": both | {"privacy": privacy}},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--updates", type=int, default=4, help="measured updates of each worker in a run")
    parser.add_argument("--tokens", default="1024,4096", help="tokens of an update, with commas between")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.updates, options.tokens = 1, 1, "512"
        MODEL.update(TINY)
    print(_machine.look())
    with tempfile.TemporaryDirectory() as folder:
        key, file = keys.make("benchmark"), Path(folder, "benchmark.key")
        keys.save(key, file)
        errors, played = Errors(key), sides(key, file)
        print(f"{exchanged():,} values, {WORKERS} workers, {options.repeats} repeats; processor ms of an update")
        print("| tokens | side | all | workers | controller | bytes of an update | added |")
        print("|---|---|---|---|---|---|---|")
        for tokens in map(int, options.tokens.split(",")):
            runs: dict[str, list[Seen]] = {name: [] for name in played}
            for _ in range(options.repeats):
                for name, side in played.items():
                    look = errors.look if name == "encrypted" else (lambda run: None)
                    steps = {"local_steps": tokens // BATCH_TOKENS}
                    runs[name].append(play(side, MODEL, WORKERS, steps, options.updates, look))
            base, *_ = runs.values()
            for name, some in runs.items():
                whole, *parts = (
                    told(values, 1000.0, 0)
                    for values in (
                        [one.total for one in some],
                        *([one.processors.get(role, 0.0) for one in some] for role in ("workers", "controller")),
                    )
                )
                added = told([one.total / other.total - 1.0 for one, other in zip(some, base, strict=True)], digits=2)
                sent = statistics.median(one.payload for one in some)
                print(f"| {tokens:,} | {name} | {whole} | {' | '.join(parts)} | {sent:,.0f} | {added} |", flush=True)
    print("\n".join(errors.told))


if __name__ == "__main__":
    main()
