"""barnraise beside what a user would pick instead, over slow links: tokens a second, bytes, held-out loss.

    sudo make bench-miles                                                   sets .venv-bench up, then runs this
    python benchmarks/miles_peers.py --peer ddp --peer barnraise            as root; `--list` names the peers
    python benchmarks/miles_peers.py --rate-mbit 100 --rtt-ms 20 --workers 2
    python benchmarks/miles_peers.py --link cellular --peer barnraise      workers behind a preset

Every peer trains the same GPT-2 from the same parameters on the same rows (Python's standard library, as bytes) with
the same AdamW, one worker in each network namespace; first over the kernel's own speed ("loopback"), then over links
of the given rate and round trip, which one process emulates packet by packet. A worker trains `--speed` tokens a second
and never more: the rest of a step's time is slept, so that all workers fit on two cores. Bytes are those that the
namespaces' devices count, headers and all. A run ends at its tokens or its seconds, whichever comes first; then the
snapshots' losses are measured, all on the same held-out rows.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import psutil
import torch
import yaml
from _races import DATA, files
from peers.common import ADAMW
from peers.measure import Result
from peers.networks import linked, unlinked
from peers.runs import Peer, Trial, run_barnraise, run_peer
from transformers.utils import logging

from barnraise.core.errors import BarnraiseError
from barnraise.data import text
from barnraise.data.shards import Dataset
from barnraise.emulation import namespaces
from barnraise.models import build, config
from barnraise.models.flat import FlatParameters
from barnraise.training.causal_lm import CausalLM
from barnraise.training.local import held_out_loss
from barnraise.transport.links.link import Link, LinkDirection
from barnraise.transport.links.presets import described
from barnraise.transport.links.presets import parse as parse_link

ROOT = Path(__file__).parents[1]
MODELS = {
    "tiny": {"hidden_size": 64, "num_layers": 2, "num_heads": 4},
    "3.3M": {"hidden_size": 256, "num_layers": 4, "num_heads": 4},
    "small": {"hidden_size": 96, "num_layers": 3, "num_heads": 4},
}
CONTEXT, HELD_OUT_ROWS = 128, 256
MBIT = 125_000.0

HIVEMIND_TROUBLE = r"received [0-9.]+% (of input|results)|[Pp]roceeding with local|Averaging .* failed"

PEERS = [
    Peer("ddp", "ddp.py", {}, "PyTorch DDP over gloo, float32 gradients every step"),
    Peer("diloco", "diloco.py", {}, "DiLoCo in a few lines over gloo, float32, outer Nesterov 0.7/0.9"),
    Peer("torchft", "torchft_diloco.py", {}, "torchft's DiLoCo, float32, outer Nesterov 0.7/0.9"),
    Peer(
        "hivemind-sync", "hivemind_peer.py", {"mode": "sync", "compression": "float16", "accumulate": 4},
        "hivemind's Optimizer, float16 gradients averaged each 4 batches of every worker",
        HIVEMIND_TROUBLE,
    ),
    Peer(
        "hivemind-local", "hivemind_peer.py", {"mode": "local", "compression": "float16"},
        "hivemind's Optimizer, local updates, float16 parameters averaged in the background each H batches",
        HIVEMIND_TROUBLE,
    ),
    Peer(
        "hivemind-local8", "hivemind_peer.py", {"mode": "local", "compression": "uniform8"},
        "the same with parameters in 8 bits",
        HIVEMIND_TROUBLE,
    ),
]  # fmt: skip
BARNRAISE: dict[str, dict[str, Any]] = {
    "barnraise": {"exchange": {"compression": "int4", "downlink_compression": "int4"}},
    "barnraise-sparse": {
        "exchange": {
            "compression": "sparse_loco",
            "error_feedback_keep": 1.0,
            "downlink_compression": "sparse_loco",
            "downlink_options": {"ratio": 0.125},
        }
    },
}
"""Settings that barnraise chooses itself in its run file. `--run-file` replaces those of the first one."""

ALL = [*BARNRAISE, *(peer.name for peer in PEERS)]


def run_file(name: str, options: argparse.Namespace, folder: Path, seed: int) -> dict[str, Any]:
    """barnraise's run file: its own choices, and what all peers have in common."""
    replaced = options.run_file is not None and name == next(iter(BARNRAISE))
    chosen = yaml.safe_load(options.run_file.read_text()) if replaced else BARNRAISE[name]
    likely = min(options.tokens, options.speed * options.workers * options.seconds)
    common: dict[str, dict[str, Any]] = {
        "run": {"name": "peers", "seed": seed, "dir": str(folder / "runs")},
        "model": {"architecture": "gpt2", "config": MODELS[options.model]},
        "data": {"kind": "text", "files": files(options.data), "context": CONTEXT},
        "controller": {"host": namespaces.address(0)},
        "training": {"tokens": options.tokens, "batch_size": options.batch, "local_steps": options.local_steps,
                     "learning_rate": options.learning_rate, "schedule": options.schedule,
                     "warmup_tokens": options.tokens // 20 if options.schedule == "cosine" else 0,
                     **ADAMW},
        "evaluation": {"times": round(options.snapshots * options.tokens / likely), "rows": HELD_OUT_ROWS},
    }  # fmt: skip
    return {**chosen, **{name: {**(chosen.get(name) or {}), **section} for name, section in common.items()}}


class Bench:
    """The data that all runs of a seed share, and the loss of what they made."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.options = folder, options

    def dataset(self, seed: int) -> Dataset:
        """Return the dataset that barnraise makes of the files for a run of that seed, with its held-out rows."""
        folder = self.folder / f"data-{seed}"
        if not folder.exists():
            text.build(folder, files(self.options.data), context=CONTEXT, seed=seed)
        return Dataset.open(folder)

    def model(self, dataset: Dataset) -> config.Resolved:
        section, meta = {"architecture": "gpt2", "config": MODELS[self.options.model]}, dataset.meta
        return config.describe(section, meta.vocab_size, CONTEXT, bos_id=meta.bos_id, eos_id=meta.eos_id)

    def having(self, **changes: Any) -> Bench:
        """The same with other options."""
        other = copy.copy(self)
        other.options = argparse.Namespace(**vars(self.options) | changes)
        return other

    def trial(self, name: str, network: str, seed: int) -> Trial:
        """A folder of its own for one run, with the parameters that `seed` makes."""
        options, folder = self.options, self.folder / f"{name}-{network}-{seed}"
        folder.mkdir()
        dataset = self.dataset(seed)
        shards = enumerate(dataset.meta.shards)
        np.save(folder / "rows.npy", np.concatenate([dataset.rows(at, 0, info.rows)["tokens"] for at, info in shards]))
        build.build(self.model(dataset), seed).save_pretrained(folder / "model")  # type: ignore[operator]
        seconds = options.loopback_seconds if network == "loopback" else options.seconds
        return Trial(
            folder, options.python, options.workers, options.tokens, seconds, options.speed, options.batch,
            options.local_steps, options.learning_rate, options.schedule, seed, options.snapshots, network,
        )  # fmt: skip

    def loss(self, path: Path, seed: int) -> float:
        """Return the loss of a snapshot, on the rows and in the way of barnraise's controller in a run of that seed."""
        dataset = self.dataset(seed)
        flat = FlatParameters(build.build(self.model(dataset)))
        flat.vector.copy_(torch.from_numpy(np.load(path)))
        held = dataset.held_out(HELD_OUT_ROWS)
        parts = (held[at : at + 16] for at in range(0, len(held), 16))
        problem, chance = CausalLM(), np.random.default_rng(0)
        return held_out_loss(problem, flat.module, (problem.batch(part, dataset.meta, chance) for part in parts))


def measure(bench: Bench, name: str, network: str, seed: int) -> Result:
    """One run; a peer that fails gives a result that says why."""
    options, trial = bench.options, bench.trial(name, network, seed)
    try:
        with networks(options, network) as spaces:
            if name in BARNRAISE:
                return run_barnraise(name, trial, spaces, run_file(name, options, trial.folder, seed))
            result, snapshots = run_peer(next(peer for peer in PEERS if peer.name == name), trial, spaces)
        result.curve = [(seconds, tokens, bench.loss(path, seed)) for seconds, tokens, path in snapshots]
        return result
    except (RuntimeError, BarnraiseError) as error:
        return Result(name, network, seed, options.workers, 0.0, 0, 0.0, 0.0, 0, 0, 0, 0, 0, 0.0, note=str(error))
    finally:
        if options.keep is None:
            shutil.rmtree(trial.folder)


def networks(options: argparse.Namespace, network: str) -> AbstractContextManager[list[str]]:
    """The namespaces. Any two machines are a round trip of `--rtt-ms` apart: each has a quarter of it each way."""
    if network == "loopback":
        return unlinked(options.workers)
    quarter = options.rtt_ms / 4000

    def link(mbit: float) -> Link:
        return Link(LinkDirection(mbit * MBIT, quarter), LinkDirection(mbit * MBIT, quarter))

    host, own = link(options.host_mbit), link(options.rate_mbit)
    if options.link:
        host, own = (
            Link(LinkDirection(options.host_mbit * MBIT, 0.0), LinkDirection(options.host_mbit * MBIT, 0.0)),
            parse_link(options.link),
        )
    return linked(options.workers, own, host)


HEAD = (
    f"{'peer':<16}{'loopback':>9}{'link':>9}{'ratio':>7}{'training':>9}{'MB up':>8}{'MB down':>8}"
    f"{'up/1M':>8}{'down/1M':>8}{'tokens':>9}{'loss':>7}{'CPU':>5}"
)


def line(loopback: Result, link: Result) -> str:
    """One line of the table; MB are of one worker."""
    if loopback.note or link.note:
        return f"{link.peer:<16} could not be run: {(loopback.note or link.note).strip()}"
    share = link.rate / loopback.rate if loopback.rate else float("nan")
    loss = f"{link.curve[-1][2]:.3f}" if link.curve else "-"
    each = 1e6 * link.workers
    return (
        f"{link.peer:<16}{loopback.rate:>9,.0f}{link.rate:>9,.0f}{share:>7.0%}{link.share:>9.0%}"
        f"{link.up / each:>8.1f}{link.down / each:>8.1f}{link.per_million(link.up):>8.1f}"
        f"{link.per_million(link.down):>8.1f}{link.tokens:>9,}{loss:>7}{link.busy:>5.0%}"
    )


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the arguments that the benchmarks of barnraise and its peers in namespaces share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--peer", action="append", choices=ALL, help="which to run; all when not given")
    add("--list", action="store_true", help="say what the peers are, and end")
    add("--workers", type=int, default=4)
    add("--rate-mbit", type=float, default=10.0, help="of each worker's link, each way")
    add("--rtt-ms", type=float, default=50.0, help="round trip between any two machines")
    add(
        "--link",
        help="of each worker, instead of the two: a preset (cellular, satellite, ...) or figures (5mbit/300ms)",
    )
    add("--host-mbit", type=float, default=1000.0, help="of the link of barnraise's controller")
    add("--model", choices=MODELS, default="3.3M")
    add("--data", choices=DATA, default="modules", help="without or with Python's own tests (5 or 18 MB)")
    add("--tokens", type=int, default=409_600, help="of all workers together; a run ends at these")
    add("--seconds", type=float, default=240.0, help="or when these are over")
    add("--loopback-seconds", type=float, default=100.0, help="the same, without links")
    add("--seeds", type=int, default=1, help="how many, from 0 on")
    add("--speed", type=float, default=512.0, help="tokens a second that a worker trains")
    add("--batch", type=int, default=4, help="rows of 128 tokens a step")
    add("--local-steps", type=int, default=30, help="H, of the peers that take local steps")
    add("--learning-rate", type=float, default=1e-3)
    add("--schedule", choices=["constant", "cosine"], default="constant")
    add("--snapshots", type=int, default=8, help="points of the loss curve")
    add(
        "--run-file",
        type=Path,
        help="a barnraise run file whose choices `barnraise` takes; what all peers share is set",
    )
    add("--python", type=Path, default=ROOT / ".venv-bench/bin/python", help="of the peers' environment")
    add("--results", type=Path, help="append every run as a line of JSON to this file")
    add("--keep", type=Path, help="keep models, outputs and snapshots in this new folder")
    add("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    return parser


def runs(bench: Bench) -> Iterator[tuple[Result, Result]]:
    """Each peer over loopback, then over the link."""
    options = bench.options
    for seed in range(options.seeds):
        for name in options.peer or ALL:
            loopback, link = (measure(bench, name, network, seed) for network in ("loopback", "link"))
            if options.results:
                with options.results.open("a") as file:
                    file.write(f"{loopback.line()}\n{link.line()}\n")
            yield loopback, link


@contextlib.contextmanager
def prepared(options: argparse.Namespace) -> Iterator[Bench]:
    """The benchmark's data in a folder of its own; refuses where it cannot be run, and says what will be."""
    lack = namespaces.missing()
    if not lack and not options.python.exists():
        lack = f"{options.python} is not there: `make bench-miles` sets it up"
    if lack and options.quick:
        print(f"skipped: {lack}")
        raise SystemExit(0)
    if lack:
        refuse(f"this cannot be measured here: {lack}")
    if options.quick:
        options.peer, options.workers, options.model, options.tokens = options.peer or ["barnraise"], 2, "tiny", 20_000
        options.seconds = options.loopback_seconds = 10.0
        options.speed, options.local_steps = 2000.0, 5
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that namespaces and processes go
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    links = f"{options.rate_mbit:g} Mbit/s, round trip {options.rtt_ms:g} ms"
    if options.link:
        links = described(parse_link(options.link))
    print(
        f"{options.workers} workers of {options.speed:g} tokens/s, model {options.model}, links of {links}, "
        f"batch {options.batch} x {CONTEXT}, H = {options.local_steps}; {psutil.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f} before"
    )
    with tempfile.TemporaryDirectory(prefix="barnraise-peers-") as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        yield Bench(folder.absolute(), options)


def main() -> None:
    options = arguments(__doc__).parse_args()
    if options.list:
        for name, choices in BARNRAISE.items():
            print(f"{name:<16} {choices}")
        for peer in PEERS:
            print(f"{peer.name:<16} {peer.what}")
        return
    with prepared(options) as bench:
        print(HEAD, flush=True)
        for loopback, link in runs(bench):
            print(line(loopback, link), flush=True)
            if loopback.failed or link.failed:
                print(f"{'':16} failed exchanges, it says: {loopback.failed} on loopback, {link.failed} over the link")
    print(
        "tokens/s of all workers; training: share of the time not blocked; MB of one worker, in all and for a million"
    )
    print("tokens of all; loss held out at the end; CPU: share of all cores busy, whatever else runs on them included.")


def refuse(why: str) -> NoReturn:
    print(f"error: {why}", file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    main()
