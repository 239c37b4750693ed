"""Measure training on a CUDA device: its losses beside the CPU, its speed beside a plain loop, its exchanges.

    make gpu                            at most nine minutes; says so and ends where there is no card
    python benchmarks/gpu.py --quick    in small; without a card a rehearsal on the CPU, whose figures say nothing

    replicas    four workers train on the card, versions are made of their payloads: all replicas have one digest
    speed       GPT-2, 124 million parameters, 8 x 1024 tokens a step: tokens/s of a worker's steps beside a plain
                PyTorch loop (the same model, autocast to bfloat16, fused AdamW, clipping), in turns; and the share of
                what the card can do at best (MFU), counting 6 N + 12 layers hidden context operations a token.
                Target: >= 95% of the loop
    adamw, muon, 8-bit, offload, checkpointing, lora, qlora, compile
                the same model with one option: tokens/s, MFU, the card's memory, and its idle share, which is that of
                the time in which the profiler sees no kernel run
    tasks       tasks of 30 steps of that model whose updates go up in `sparse_loco`, with a version (`int4`) in the
                midst of each: the share of the time in steps, and the card's idle share
    exchange    of as many parameters, by part: copied from the card, made an update (`sparse_loco`) in main memory and
                on the card, a version taken in (`int4`) and checked, copied to the card
    runs        `barnraise train` with `device: cuda` and `precision: bfloat16`, one worker and four that share the
                card, in synchronous rounds; held-out losses beside those of the same run file on the CPU in float32

Each part prints its measurements, and the last lines are a table with the card's name. After `--deadline` seconds no
further part begins and the benchmark ends those that run, so that earlier measurements remain valid. The exit code is 1
when a check fails: unequal replicas, or a loss more than 5% above the CPU's.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _card_bench import FULL, QUICK, Bench, make_executor
from _card_options import TRAINING, table, tasks, training
from _cards import Clock, Plain, Rows, operations_a_token, peak_operations
from large import DOWN, UP, make_server, make_version, timed, updates

from barnraise import compression
from barnraise.controller.state.actions import Held, Slot
from barnraise.controller.tensors.parameter_server import Made
from barnraise.core.threads import Crew
from barnraise.core.types import News, ParameterRange, Update
from barnraise.ledger import Checkpoints, RunDirectory
from barnraise.ledger.view import LedgerView
from barnraise.models.vectors import digest
from barnraise.training.local import LocalTrainer
from barnraise.worker.device_session import DevicePath
from barnraise.worker.executor import WorkerExecutor
from barnraise.worker.update_path import UpdatePath

TOLERANCE = 0.05
NODES, LOWEST_RATIO = 4, 0.95


def taken_in(worker: WorkerExecutor, made: Made) -> int:
    """Return the version of the worker's replica after it applied that version; -1 when the digest differs."""
    update = Update("delta", made.version, made.delta, made.digest, made.parameters)
    return worker.update(News((update,)), lambda _: made.delta_bytes)


def replicas(bench: Bench) -> None:
    """Check that workers that train on the card follow the versions made of their steps, to the bit."""
    scale = bench.scale
    rows = Rows(scale.vocabulary, 32, 64)
    workers = [make_executor(bench, scale.run_model, scale.vocabulary, 32)[0] for _ in range(NODES)]
    size = len(workers[0].replica)
    server = make_server(size, 1)
    versions, moved = 3, 0
    for version in range(1, versions + 1):
        payloads: list[memoryview] = []
        for number, worker in enumerate(workers):
            worker.trainer.load(worker.replica)
            worker.trainer.run(rows.batches(4, 2 + number), 1e-3)
            payloads.append(worker.path.send(worker.replica.clone(), worker.trainer.flat.vector.cpu()).data)
        slots = [Slot(str(n), ParameterRange(0, size), (Held(n, 1.0, 0),)) for n in range(NODES)]
        made = server.aggregate(version, slots, payloads.__getitem__)
        reached = [taken_in(worker, made) for worker in workers]  # all of them, whatever the first says
        moved += reached == [version] * NODES
    digests = {digest(worker.replica) for worker in workers} | {digest(server.parameters)}
    bench.check(moved == versions and len(digests) == 1, f"replicas differ: {moved} of {versions} versions, {digests}")
    print(f"  {NODES} workers, {versions} versions: {len(digests)} digest of all replicas and the server's parameters")


def run_file(bench: Bench, folder: Path, device: str, precision: str, workers: int) -> Path:
    scale = bench.scale
    content = {
        "run": {"name": f"{device}-{precision}-{workers}", "dir": str(folder)},
        "model": {"architecture": "gpt2", "config": scale.run_model},
        "data": {"kind": "text", "files": scale.run_files, "context": scale.run_context},
        "controller": {"use_async_training": False, "evaluations": 4, "lease": 60.0},
        "workers": [
            {"name": f"w{index}", "device": device, "threads": max(1, (os.cpu_count() or 1) // workers)}
            for index in range(workers)
        ],
        "training": {
            "tokens": scale.run_tokens, "batch_size": scale.run_batch, "local_steps": 10, "precision": precision,
            "compression": UP, "downlink_compression": DOWN, "error_feedback_keep": 1.0,
        },
    }  # fmt: skip
    path = folder / f"{content['run']['name']}.yaml"  # type: ignore[index]
    path.write_text(json.dumps(content))
    return path


def train(bench: Bench, path: Path) -> dict[str, Any] | None:
    """Return the report of `barnraise train --json`, and the card's memory that the run took.

    Return None when no time was left.
    """
    command = [sys.executable, "-m", "barnraise.cli.main", "train", str(path), "--json"]
    free, least = (torch.cuda.mem_get_info()[0] if bench.cuda else 0), None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while True:
            try:
                out, errors = process.communicate(timeout=min(0.5, bench.clock.left))
                break
            except subprocess.TimeoutExpired:
                if bench.cuda:
                    now = torch.cuda.mem_get_info()[0]
                    least = now if least is None else min(least, now)
                if not bench.clock.left:
                    process.kill()
                    return None
    if process.returncode:
        raise RuntimeError(f"{path.name} ended with code {process.returncode}: {errors.strip().splitlines()[-1:]}")
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    found["card"] = free - least if least is not None else 0
    return found


def runs(bench: Bench) -> None:
    """Run real processes through the command, and compare their losses with the CPU's."""
    with tempfile.TemporaryDirectory() as name:
        for workers in bench.scale.crowds:
            found = {}
            for device, precision in ((bench.device, "bfloat16"), ("cpu", "float32")):
                result = train(bench, run_file(bench, Path(name), device, precision, workers))
                if result is None:
                    print(f"  {workers} on {device}: ended at the deadline", flush=True)
                    return
                found[precision] = result
                card = f", {result['card'] / 2**30:.2f} GiB of the card" if result["card"] else ""
                largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
                print(
                    f"  {workers} worker{'s' * (workers > 1)} on {device}, {precision}: loss "
                    f"{result['first_loss']:.4f} to {result['final_loss']:.4f}, {result['tokens_per_second']:,.0f} "
                    f"tokens/s{card}; the largest process so far had {largest:.2f} GiB",
                    flush=True,
                )
                one_history(bench, Path(result["run_dir"]))
            ratio = found["bfloat16"]["final_loss"] / found["float32"]["final_loss"]
            print(f"  {workers}: loss over the CPU's {ratio:.4f}", flush=True)
            bench.check(ratio < 1.0 + TOLERANCE, f"loss with {workers} is {ratio:.3f} of the CPU's")


def one_history(bench: Bench, folder: Path) -> None:
    """Check that the checkpoint's parameters have the digest of the ledger's version, which every worker knows."""
    run = RunDirectory(folder)
    checkpoint = Checkpoints(run.checkpoints).load_latest().checkpoint
    with LedgerView(run.ledger) as view:
        newest = view.versions()[-1]
    same = checkpoint is not None and checkpoint.manifest.parameters_digest == newest.digest
    bench.check(same, f"{folder.name}: the checkpoint is not the ledger's version {newest.version}")


def speed(bench: Bench) -> None:
    """Measure the speed with the largest batch, up to the scale's, for which the device has memory."""
    batch = bench.scale.batch
    while batch:
        try:
            speed_at(bench, batch)
            return
        except torch.cuda.OutOfMemoryError as error:
            reason = str(error).splitlines()[0]
        batch //= 2  # out here, as the error holds on to what was allocated
        torch.cuda.empty_cache()
        print(f"  {reason}: next a batch of {batch}", flush=True)
    bench.check(False, "the card's memory holds no batch")


def speed_at(bench: Bench, batch: int) -> None:
    scale = bench.scale
    executor, resolved = make_executor(bench, scale.model, scale.vocabulary, scale.context)
    trainer: LocalTrainer = executor.trainer
    rows = Rows(scale.vocabulary, scale.context, batch * scale.steps)

    def ours() -> None:
        trainer.run(rows.batches(batch, scale.steps), 1e-4)
        bench.finish_work()

    ours()
    print(f"  {len(executor.replica):,} parameters, {batch} x {scale.context} tokens; {bench.memory()}", flush=True)
    loop = Plain(bench.device, resolved)

    def plain() -> None:
        loop.run(rows.batches(batch, scale.steps))
        bench.finish_work()

    plain()
    tokens, rates = batch * scale.context * scale.steps, {"worker": list[float](), "plain loop": list[float]()}
    for _ in range(scale.turns):
        for name, work in (("worker", ours), ("plain loop", plain)):
            rates[name].append(tokens / timed(work))
        if not bench.clock.left:
            break
    told(bench, rates, operations_a_token(
        len(executor.replica), scale.model["num_layers"], scale.model["hidden_size"], scale.context
    ))  # fmt: skip


def told(bench: Bench, rates: dict[str, list[float]], operations: float) -> None:
    """Print medians and ranges of the tokens a second, and their share of the card's peak."""
    card = torch.cuda.get_device_name() if bench.cuda else ""
    peak = peak_operations(card)
    for name, several in rates.items():
        middle = statistics.median(several)
        mfu = f", MFU {middle * operations / peak:.1%}" if peak else ""
        print(f"  {name}: {middle:,.0f} tokens/s ({min(several):,.0f} to {max(several):,.0f}){mfu}")
    if peak is None and card:
        print(f"  no MFU: what {card} can do at best is not in this script's table")
    ratios = [ours / theirs for ours, theirs in zip(rates["worker"], rates["plain loop"], strict=True)]
    ratio = statistics.median(ratios)
    verdict = "" if not bench.cuda else f" (target: {LOWEST_RATIO:.0%}{'' if ratio >= LOWEST_RATIO else ', missed'})"
    print(f"  worker over plain loop: {ratio:.1%} of {min(ratios):.1%} to {max(ratios):.1%}{verdict}", flush=True)


def exchange(bench: Bench) -> None:
    """Print medians of the seconds of a worker between two tasks, without the first time."""
    scale = bench.scale
    executor, _ = make_executor(bench, scale.model, scale.vocabulary, scale.context)
    trainer, size = executor.trainer, len(executor.replica)
    executor.replica.copy_(trainer.flat.vector.cpu())
    server = make_server(size, torch.get_num_threads())
    server.parameters.copy_(executor.replica)
    payloads, rows = updates(size), Rows(scale.vocabulary, scale.context, 2)
    here, there = (
        kind(
            compression.create(UP), error_feedback=True, decay=1.0, update_clip=None, crew=Crew(torch.get_num_threads())
        )
        for kind in (UpdatePath, DevicePath)
    )
    seconds, reached = dict[str, list[float]](), list[int]()

    def part(name: str, work: Callable[[], object]) -> None:
        bench.finish_work()
        seconds.setdefault(name, []).append(timed(lambda: (work(), bench.finish_work())))

    for _ in range(4):
        start, host = executor.replica.clone(), [executor.replica]
        part("copy to the card", lambda start=start: trainer.load(start))
        trainer.run(rows.batches(1, 2), 1e-4)
        part("copy from the card", lambda host=host: host.__setitem__(0, trainer.flat.vector.cpu()))
        part("update in main memory", lambda start=start, host=host: here.send(start, host[0]))
        ends = executor.replica.to(trainer.device, copy=True), trainer.flat.vector.clone()
        part("update on the card", lambda ends=ends: there.send(*ends))
        made = make_version(server, payloads)
        part("take a version in", lambda made=made: reached.append(taken_in(executor, made)))
        if not bench.clock.left:
            break
    bench.check(-1 not in reached, f"versions were not taken in: {reached}")
    middles = {name: statistics.median(several[1:] or several) for name, several in seconds.items()}
    parts = ", ".join(f"{name} {middle:.3f} s" for name, middle in middles.items())
    print(f"  {size:,} parameters, {torch.get_num_threads()} threads: {sum(middles.values()):.3f} s ({parts})")
    print(f"  {bench.memory()}", flush=True)


PARTS: dict[str, Callable[[Bench], None]] = {
    "replicas": replicas,
    "speed": speed,
    **{name: partial(training, name=name) for name in TRAINING},
    "tasks": tasks,
    "exchange": exchange,
    "runs": runs,
}
PARTS["compile"] = PARTS.pop("compile")  # the last, since the deadline cannot end a compilation


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="the CPU only rehearses (cuda)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="(all)")
    parser.add_argument("--deadline", type=float, default=530.0, help="seconds (530)")
    parser.add_argument("--turns", type=int, help="timed turns of a part (5, and 2 with --quick)")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    there = torch.cuda.is_available()
    if options.device == "cuda" and not there and not options.quick:
        print(f"skipped: torch {torch.__version__} sees no CUDA device here (`--quick` rehearses on the CPU)")
        return 0
    scale = QUICK if options.quick else FULL
    bench = Bench(
        "cuda" if there and options.device == "cuda" else "cpu",
        replace(scale, turns=max(1, options.turns or scale.turns)),
        Clock(options.deadline),
    )
    torch.set_num_threads(1 if options.quick else min(8, os.cpu_count() or 1))
    what = torch.cuda.get_device_name() if bench.cuda else "rehearsal on the CPU: these figures say nothing"
    print(f"{what}; torch {torch.__version__}", flush=True)
    for name in options.parts:
        if not bench.clock.left:
            print(f"{name}: no time left", flush=True)
            continue
        print(f"{name}:", flush=True)
        took = timed(partial(bench.attempt, name, PARTS[name]))
        if bench.cuda:
            torch.cuda.empty_cache()
        print(f"  took {took:.1f} s", flush=True)
    if bench.rows:
        print(f"\n{table(bench.rows, what)}", flush=True)
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
