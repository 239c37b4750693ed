"""Measure example-level differential privacy: the accountant, the time of a step, the loss of adapters at epsilon 8.

    python benchmarks/differential_privacy.py            three seeds
    python benchmarks/differential_privacy.py --quick    one seed, and a shorter training

A small GPT is trained on the source of this package, byte by byte, and then adapters (LoRA) on the pages of its
documentation: with the usual trainer, and with the private one at epsilon 8, delta 1e-5. Both take as many steps, with
as many rows in the mean. A row is 32 bytes of a page. The loss is that of held-out rows.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from barnraise.data.batches import Batch
from barnraise.privacy.accounting import epsilon, smallest_noise
from barnraise.privacy.examples.row_gradients import RowGradients
from barnraise.privacy.examples.trainer import PrivateTrainer
from barnraise.privacy.gaussian import SecretStream, add_noise
from barnraise.training.causal_lm import CausalLM
from barnraise.training.local import LocalTrainer, held_out_loss, tensors
from barnraise.wire.private import Private

ROOT = Path(__file__).parents[1]
LENGTH, ROWS, BATCH, STEPS, PASSES = 32, 2048, 64, 32, 4
BUDGET, DELTA, CLIP = 8.0, 1e-5, 1.0
FIGURES = [(1.0, 0.01, 1000, 1.828), (0.8, 0.02, 2000, 9.14), (4.0, 1.0, 100, 13.21)]
INNER: dict[str, Any] = {"optimizer": "adamw", "options": {}, "gradient_clip": 1.0}


def rows_of(pattern: str, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Return all rows of the files, shuffled: int64 [rows, LENGTH]."""
    text = b"".join(path.read_bytes() for path in sorted(ROOT.glob(pattern)))
    found = np.frombuffer(text[: len(text) // LENGTH * LENGTH], np.uint8).reshape(-1, LENGTH).astype(np.int64)
    rng.shuffle(found)
    return found


def batch(rows: np.ndarray[Any, Any]) -> Batch:
    return {"input_ids": rows, "labels": rows}


def gpt(width: int, layers: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = GPT2Config(
        vocab_size=256, n_positions=LENGTH, n_embd=width, n_layer=layers, n_head=4, bos_token_id=0, eos_token_id=0
    )
    sizes.resid_pdrop = sizes.embd_pdrop = sizes.attn_pdrop = 0.0
    return GPT2LMHeadModel(sizes)


def adapted(module: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    wanted = LoraConfig(
        task_type="CAUSAL_LM", r=8, lora_alpha=16, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True
    )
    return get_peft_model(module.requires_grad_(False), wanted)


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the median time of `work`, after one call that is not counted."""
    work()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def accountant() -> None:
    print("accountant    noise  rate  steps   epsilon    known")
    for noise, rate, steps, known in FIGURES:
        print(f"              {noise:5g}  {rate:4g}  {steps:5}  {epsilon(noise, rate, steps, DELTA):8.4f} {known:8}")


def by_hooks(module: Any, rows: np.ndarray[Any, Any]) -> Callable[[], object]:
    """Return the gradients of single rows by opacus' hooks."""
    from opacus import GradSampleModule

    hooked = GradSampleModule(module, loss_reduction="sum", strict=False)
    problem, trained = CausalLM(), [value for value in module.parameters() if value.requires_grad]

    def work() -> object:
        for value in trained:
            value.grad_sample = None
        problem.loss(hooked, tensors(batch(rows), torch.device("cpu")))[0].backward()
        return torch.cat([value.grad_sample.flatten(1) for value in trained], 1)

    return work


def steps_in_time(repeats: int) -> None:
    """Print the time of a step of 16 rows of a GPT with adapters: usual, private, and its ways to single rows."""
    rows = rows_of("docs/guides/*.md", np.random.default_rng(0))[:16]
    torch.manual_seed(0)
    usual, private = (
        LocalTrainer(adapted(gpt(128, 4)), **INNER),
        PrivateTrainer(adapted(gpt(128, 4)), private=Private(CLIP, 1.0, 0.1), batch_size=16, **INNER),
    )
    base = median_seconds(lambda: usual.step(batch(rows), 1e-3), repeats)
    step = median_seconds(lambda: private.step(batch(rows), 1e-3), repeats)
    here = tensors(batch(rows), torch.device("cpu"))
    ways = RowGradients(private.module, private.problem)
    alone = RowGradients(private.module, private.problem)
    alone._vectorised = None
    print(f"step          {len(usual.flat.vector):,} trained values, 16 rows of {LENGTH}: usual {base * 1e3:.1f} ms")
    print(f"              private {step / base:.2f} times that, of which gradients of rows:")
    print(f"              torch.func {median_seconds(lambda: ways.of(here), repeats) / base:.2f}")
    print(f"              one by one {median_seconds(lambda: alone.of(here), repeats) / base:.2f}")
    print(f"              opacus' hooks {median_seconds(by_hooks(adapted(gpt(128, 4)), rows), repeats) / base:.2f}")
    values = np.zeros(1_000_000, np.float32)
    seconds = median_seconds(lambda: add_noise(values, 1.0, SecretStream()), repeats)
    print(f"              noise {seconds * 1e3:.0f} ns a value")


def sampled(rows: np.ndarray[Any, Any], steps: int, stream: SecretStream) -> Iterator[Batch]:
    for _ in range(steps):
        yield batch(rows[stream.chosen(len(rows), 1.0 / STEPS)])


def shuffled(rows: np.ndarray[Any, Any], steps: int, rng: np.random.Generator) -> Iterator[Batch]:
    for _ in range(steps):
        yield batch(rows[rng.choice(len(rows), BATCH, replace=False)])


def losses(seed: int, first: int, passes: int) -> tuple[float, float, float]:
    """Return the held-out loss of the pages before adapters, and with usual and with private ones."""
    rng = np.random.default_rng(seed)
    code, pages = rows_of("src/barnraise/**/*.py", rng), rows_of("docs/**/*.md", rng)
    train, held = pages[:ROWS], [batch(pages[ROWS : ROWS + 1024])]
    torch.manual_seed(seed)
    base = gpt(64, 2)
    LocalTrainer(base, **INNER).run(shuffled(code, first, rng), 3e-3)
    whole = {name: value.clone() for name, value in base.state_dict().items()}
    found = [held_out_loss(CausalLM(), base, held)]
    steps = passes * STEPS
    noise = smallest_noise(BUDGET, 1.0 / STEPS, steps, DELTA)
    for private in (False, True):
        module: nn.Module = gpt(64, 2)
        module.load_state_dict(whole)
        torch.manual_seed(seed)
        module = adapted(module)
        if private:
            trainer: LocalTrainer = PrivateTrainer(
                module, private=Private(CLIP, noise, 1.0 / STEPS), batch_size=BATCH, **INNER
            )
            trainer.run(sampled(train, steps, SecretStream()), 3e-3)
        else:
            trainer = LocalTrainer(module, **INNER)
            trainer.run(shuffled(train, steps, rng), 3e-3)
        found.append(held_out_loss(CausalLM(), module, held))
    return found[0], found[1], found[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, and a shorter training")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    accountant()
    steps_in_time(3 if quick else 15)
    seeds, first, passes = ([0], 60, 1) if quick else ([0, 1, 2], 150, PASSES)
    noise = smallest_noise(BUDGET, 1.0 / STEPS, passes * STEPS, DELTA)
    spent = epsilon(noise, 1.0 / STEPS, passes * STEPS, DELTA)
    print(f"loss          {ROWS:,} rows, {passes * STEPS} steps of {BATCH} rows, noise {noise:g}, epsilon {spent:.2f}")
    found = [losses(seed, first, passes) for seed in seeds]
    for name, values in zip(("before", "usual", "private"), zip(*found, strict=True), strict=True):
        print(
            f"              {name:<8} {statistics.mean(values):.3f} nats a byte ({min(values):.3f}-{max(values):.3f})"
        )


if __name__ == "__main__":
    main()
