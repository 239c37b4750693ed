"""Measure adapters: their bytes, the memory of a worker beside a large base, and the loss with A and B or B alone.

    python benchmarks/lora.py [--parts bytes,memory,rounding,loss] [--bases bfloat16,int8,nf4] [--seeds 3]

*bytes*: the largest contribution of rank 16 on all linear layers of a GPT-2 of 124M parameters, by codec, and its share
of the full model's. *memory*: the peak of a process that takes `--steps` steps of one row beside a Llama of 1.1 billion
parameters (random ones, in a file of bfloat16), by the type of the base, against the estimate of `check`.
*rounding*: how far the updates of two honest machines are apart, which audits must allow for. *loss* (in virtual time):
a Llama of 0.1M parameters is trained on one kind of text, then fine-tuned on another by four workers in synchronous
rounds of 20 steps, with A and B, with B alone, and with all parameters; each side at the best of its rates with the
first seed.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.compression.catalog import CATALOG as CODECS
from barnraise.config import load
from barnraise.models import memory
from barnraise.models.config import describe
from barnraise.models.exchange.catalog import CATALOG
from barnraise.models.exchange.record import Exchange
from barnraise.plan import Purpose, resolve
from barnraise.trust.repeats import TOLERANCE
from barnraise.wire.manifest import ExchangeName

GPT2 = {"hidden_size": 768, "num_layers": 12, "num_heads": 12}
LLAMA = {
    "hidden_size": 2048, "num_layers": 16, "num_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192
}  # fmt: skip
SMALL = {"hidden_size": 64, "num_layers": 2, "num_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128}
CONTEXT, SHORT = 256, 64
ALLOWED = TOLERANCE["float32"]
BASE = "frozen-model.safetensors"
KINDS = ("bfloat16", "int8", "nf4")
MOST_BYTES, MOST_MEMORY, RIGHT_WITHIN = 1.5e6, 8e9, 0.15
"""Targets: bytes of a contribution in int4; a worker's peak; how far the estimate may be from it."""

SIDES: dict[str, dict[str, Any]] = {
    "A and B": {"adapter": {"rank": 8}},
    "B alone": {"adapter": {"rank": 8, "train": "b_only"}},
    "all": {},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="bytes,memory,rounding,loss")
    parser.add_argument("--bases", default=",".join(KINDS), help="types of the base whose memory is measured")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rates", default="0.002,0.005,0.012")
    parser.add_argument("--tokens", type=int, default=400_000)
    parser.add_argument("--step-of", help=argparse.SUPPRESS)  # the measurement of one process
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.step_of:
        print(json.dumps(peak(**json.loads(options.step_of))))
        return
    llama = LLAMA
    if options.quick:
        llama, options.seeds, options.steps, options.tokens, options.rates = SMALL, 1, 2, 20_000, "0.005"
    parts = options.parts.split(",")
    if "bytes" in parts:
        tell_bytes()
    if "memory" in parts:
        tell_memory(llama, options.bases.split(","), options.steps)
    if "rounding" in parts:
        tell_rounding(options.steps)
    if "loss" in parts:
        tell_losses(options.seeds, options.tokens, [float(rate) for rate in options.rates.split(",")])


def exchange_of(config: dict[str, Any], **options: Any) -> Exchange:
    return Exchange.of(config, ExchangeName("lora", CATALOG.resolve("lora", options)))


def tell_bytes() -> None:
    config = describe({"architecture": "gpt2", "config": GPT2}, 50257, 1024)
    adapters, whole = exchange_of(config, rank=16).exchanged, memory.model_size(config)
    print(f"rank 16 on all linear layers of {whole:,} parameters: {adapters:,} values travel ({adapters / whole:.1%})")
    for name in ("none", "int8", "int4", "sparse_loco"):
        entry, options = CODECS.entry(name), CODECS.resolve(name, {})
        size, full = (entry.declares.max_bytes(options, count) for count in (adapters, whole))
        target = f", target <= {MOST_BYTES / 1e6:g} MB" if name == "int4" else ""
        print(f"  {name:12}{size / 1e6:8.2f} MB a contribution, {full / 1e6:8.1f} MB for the whole model{target}")


def tell_memory(llama: dict[str, Any], kinds: Sequence[str], steps: int) -> None:
    config = describe({"architecture": "llama", "config": llama}, 32_000, CONTEXT)
    with tempfile.TemporaryDirectory() as folder:
        save_base(config, folder)
        size = memory.model_size(config)
        print(f"a Llama of {size:,} parameters, rank 16, one row of {CONTEXT} tokens, {steps} steps on one thread")
        for kind in kinds:
            given = json.dumps({"folder": folder, "config": config, "base": kind, "steps": steps})
            told = subprocess.run([sys.executable, __file__, "--step-of", given], capture_output=True, text=True)
            if told.returncode:
                raise SystemExit(told.stderr)
            found = json.loads(told.stdout.splitlines()[-1])
            row = {"batch_size": 1, "context": CONTEXT, "inner_states": 2}
            expected = memory.worker(config, exchange_of(config, rank=16, base=kind), **row).total
            print(
                f"  {kind:12} peak of the steps {found['bytes'] / 1e9:5.2f} GB "
                f"(target <= {MOST_MEMORY / 1e9:g}), estimated {expected / 1e9:5.2f} GB "
                f"({expected / found['bytes'] - 1:+.0%}, target within {RIGHT_WITHIN:.0%}); "
                f"peak with loading {found['loading'] / 1e9:5.2f} GB; "
                f"{found['seconds']:.1f} s a step; loss {found['first']:.3f} to {found['last']:.3f}"
            )


def peak(folder: str, config: dict[str, Any], base: str, steps: int) -> dict[str, float]:
    """Take steps beside a base in a file, and return the peaks of the process's memory.

    Pages of the file that are mapped while it is loaded are among them, though the system may take them back.
    """
    import torch

    from barnraise.training.local import LocalTrainer

    torch.set_num_threads(1)
    module = beside(config, folder, base)
    loading = peak_so_far()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here on
    trainer = LocalTrainer(module, optimizer="adamw", options={"weight_decay": 0.0}, gradient_clip=None)
    ids = torch.randint(0, config["vocab_size"], (1, CONTEXT), generator=torch.Generator().manual_seed(1)).numpy()
    began, losses = time.perf_counter(), list[float]()
    for _ in range(steps):
        loss = trainer.step({"input_ids": ids, "labels": ids}, 1e-3)
        assert loss is not None
        losses.append(loss)
    seconds = (time.perf_counter() - began) / steps
    return {"bytes": peak_so_far(), "loading": loading, "seconds": seconds, "first": losses[0], "last": losses[-1]}


def peak_so_far() -> int:
    """Return the most memory that this process has held, in bytes, since it began or since it was set back."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def save_base(config: dict[str, Any], folder: str) -> None:
    """Write a model of random values in bfloat16 as the run's base."""
    import torch
    from safetensors.torch import save_model
    from transformers import AutoModelForCausalLM

    from barnraise.models.instantiate import hugging_face_config

    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_config(hugging_face_config(config), dtype=torch.bfloat16)
    save_model(base, f"{folder}/{BASE}", metadata={"format": "pt"})


def beside(config: dict[str, Any], folder: str, kind: str) -> Any:
    """Return the module with adapters beside the base in `folder`, which is of this type in memory."""
    from barnraise.core.types import Blob
    from barnraise.models.build import build_exchanged
    from barnraise.wire.manifest import FrozenPart

    size = Path(folder, BASE).stat().st_size
    options = CATALOG.resolve("lora", {"rank": 16, "base": kind})
    name = ExchangeName("lora", options, (FrozenPart(BASE, Blob("0" * 64, size)),))
    return build_exchanged(config, Exchange.of(config, name), Path(folder))


def tell_rounding(steps: int) -> None:
    """Print how far the updates of two machines are apart that differ in threads and in rows at a time."""
    import torch

    shape = SMALL | {"num_layers": 4}
    config = describe({"architecture": "llama", "config": shape}, 258, SHORT)
    batches = torch.randint(0, 258, (steps, 4, SHORT), generator=torch.Generator().manual_seed(1)).numpy()
    print(
        f"{steps} steps of a Llama of {memory.model_size(config):,} parameters: distance of the updates of two machines"
    )
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        save_base(config, folder)
        for kind in ("float32", *KINDS):
            one = updates(config, folder, kind, batches, threads=1, tokens_at_once=None)
            far = [
                torch.linalg.vector_norm(one - other) / torch.linalg.vector_norm(one)
                for other in (
                    updates(config, folder, kind, batches, threads=2, tokens_at_once=None),
                    updates(config, folder, kind, batches, threads=1, tokens_at_once=SHORT),
                )
            ]
            print(f"  {kind:12} two threads {far[0]:.1e}, a row at a time {far[1]:.1e} (tolerance {ALLOWED:g})")


def updates(
    config: dict[str, Any], folder: str, kind: str, batches: Any, *, threads: int, tokens_at_once: int | None
) -> Any:
    """Return the movement of the adapters over the batches."""
    import torch

    from barnraise.training.local import LocalTrainer

    torch.set_num_threads(threads)
    module = beside(config, folder, kind)
    trainer = LocalTrainer(
        module, optimizer="adamw", options={"weight_decay": 0.0}, gradient_clip=1.0, tokens_at_once=tokens_at_once
    )
    start = trainer.flat.vector.clone()
    for ids in batches:
        trainer.step({"input_ids": ids, "labels": ids}, 1e-3)
    return trainer.flat.vector - start


def text(words: str, seed: int) -> str:
    """Return sentences of `words`, in which each word depends on the one before."""
    rng, known = random.Random(seed), words.split()
    follow = {word: rng.sample(known, 3) for word in known}
    lines = []
    for _ in range(3000):
        word, line = rng.choice(known), []
        for _ in range(12):
            line.append(word)
            word = rng.choice(follow[word])
        lines.append(" ".join(line) + ".")
    return "\n".join(lines)


BEFORE = "barn hands raise roof beam nail wood saw rope ladder field neighbour morning dinner horse wagon hill"
AFTER = "ship sail mast anchor wave wind harbour captain crew storm island rope morning deck barrel fish"


def tell_losses(seeds: int, tokens: int, rates: list[float]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "before.txt").write_text(text(BEFORE, 1))
        (folder / "after.txt").write_text(text(AFTER, 2))
        train_base(folder, max(tokens, 100_000))
        print(f"{tokens:,} tokens, four workers, rounds of 20 steps, {seeds} seeds: held-out loss (least to most)")
        for side, training in SIDES.items():
            first = {rate: play(folder, training, rate, 0, tokens) for rate in rates}
            rate = min(rates, key=first.__getitem__)
            losses = [first[rate], *(play(folder, training, rate, seed, tokens) for seed in range(1, seeds))]
            print(f"  {side:10} {statistics.mean(losses):.4f} ({min(losses):.4f} to {max(losses):.4f}), rate {rate:g}")


def train_base(folder: Path, tokens: int) -> None:
    """Train a model from scratch on the first text, and leave it in `folder`/base."""
    import torch
    from transformers import AutoModelForCausalLM

    from barnraise.data.tokenizers import ByteTokenizer
    from barnraise.models.instantiate import hugging_face_config

    config = describe({"architecture": "llama", "config": SMALL}, 258, SHORT, eos_id=256, pad_id=257)
    torch.manual_seed(0)
    module: Any = AutoModelForCausalLM.from_config(hugging_face_config(config))
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.005, betas=(0.9, 0.95))
    stream = torch.tensor(list((folder / "before.txt").read_bytes()))
    chance = torch.Generator().manual_seed(0)
    for _ in range(tokens // (16 * SHORT)):
        starts = torch.randint(0, len(stream) - SHORT, (16,), generator=chance).tolist()
        ids = torch.stack([stream[start : start + SHORT] for start in starts])
        loss = module(input_ids=ids, labels=ids, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    module.save_pretrained(folder / "base")
    for name, content in ByteTokenizer().files().items():
        (folder / "base" / name).write_bytes(content)


def play(folder: Path, training: dict[str, Any], rate: float, seed: int, tokens: int) -> float:
    """Return the held-out loss after fine-tuning on the second text."""
    run = {
        "run": {"seed": seed},
        "model": {"path": str(folder / "base")},
        "data": {"kind": "text", "files": [str(folder / "after.txt")], "context": SHORT},
        "controller": {"use_async_training": False},
        "evaluation": {"rows": 64, "times": 1},
        "training": {"tokens": tokens, "batch_size": 4, "local_steps": 20, "learning_rate": rate} | training,
    }
    report = simulate(resolve(load(run), purpose=Purpose.SIMULATE, nodes=4), Trial(4, real=True, seed=seed))
    assert report.losses.final_loss is not None
    return report.losses.final_loss


if __name__ == "__main__":
    main()
