"""Measure whether Freivalds' check of matrix products is a cheaper audit than repeating a training step.

    python benchmarks/freivalds.py [--repeats 5]

Freivalds (1977) checks C = A B by C r = A (B r) for a random vector r: three products of a matrix and a vector. Slalom
(Tramer and Boneh 2019, arXiv 1806.03287) checks a network's linear layers so. A training step has three products for
each linear layer (outputs, gradients of inputs, gradients of weights) and six for each head of each row's attention.
Printed for a step of AdamW on a CPU, in CPU seconds: repeating it; all checks with one vector each; the check's part
of the time; the bytes that a worker must send so that a verifier can check, their seconds at 100 Mbit/s and
to hash; the bytes and seconds without the weights' gradients, which the verifier then computes itself, and their part
of the step. The verifier's other work (attention's softmax, norms, activations, the optimizer) is left out, which
favours the check. Medians of the repeats, with their range. Then: the largest change of a product of float32 that
rounding hides from the check.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from _machine import look
from torch import Tensor

from barnraise.models.build import build
from barnraise.models.config import describe
from barnraise.models.linears import linears
from barnraise.training.local import LocalTrainer

VOCABULARY, CONTEXT, ROWS = 8192, 256, 4
LINK_BYTES = 100e6 / 8
MODELS: dict[str, dict[str, Any]] = {
    "6 layers of 256": {"hidden_size": 256, "num_layers": 6, "num_heads": 4},
    "GPT-2 (12 of 768)": {"hidden_size": 768, "num_layers": 12, "num_heads": 12},
}


@dataclass(frozen=True)
class Product:
    """`count` products of [rows, inner] and [inner, columns]; `weights`: the result is the gradient of a weight."""

    rows: int
    inner: int
    columns: int
    count: int = 1
    weights: bool = False

    @property
    def result_bytes(self) -> int:
        """Return the bytes of the results as float32."""
        return 4 * self.count * self.rows * self.columns

    @property
    def operations(self) -> int:
        """Return the multiplications of computing them."""
        return self.count * self.rows * self.inner * self.columns


def products(config: Mapping[str, Any], rows: int) -> Iterator[Product]:
    """Yield the products of a training step of a GPT-2 on `rows` rows."""
    tokens, hidden, heads = rows * CONTEXT, config["hidden_size"], config["num_attention_heads"]
    shapes = [(layer.inputs, layer.outputs) for layer in linears(config)] + [(hidden, VOCABULARY)]
    for inputs, outputs in shapes:
        yield Product(tokens, inputs, outputs)
        yield Product(tokens, outputs, inputs)
        yield Product(inputs, tokens, outputs, weights=True)
    each = rows * heads * config["num_hidden_layers"]
    yield Product(CONTEXT, hidden // heads, CONTEXT, 2 * each)  # scores, and gradients of probabilities
    yield Product(CONTEXT, CONTEXT, hidden // heads, 4 * each)  # values, and gradients of values, queries, keys


def check(left: Tensor, right: Tensor, result: Tensor) -> float:
    """Return the largest difference of C r and A (B r), for r of signs."""
    vector = torch.randint(0, 2, (right.shape[-1], 1)).float().mul_(2).sub_(1)
    return float((result @ vector - left @ (right @ vector)).abs().max())


def checking(found: Sequence[Product]) -> float:
    """Return the seconds to check all of these products, once each."""
    taken = 0.0
    for product in found:
        batch = min(product.count, 48)
        left = torch.randn(batch, product.rows, product.inner)
        right = torch.randn(batch, product.inner, product.columns)
        result = left @ right
        began = time.process_time()
        check(left, right, result)
        taken += (time.process_time() - began) * product.count / batch
    return taken


def repeating(config: dict[str, Any], rows: int, repeats: int) -> list[float]:
    """Return the seconds of a step of AdamW, of each repeat."""
    trainer = LocalTrainer(build(config, 0), optimizer="adamw", options={"weight_decay": 0.0}, gradient_clip=None)
    ids = torch.randint(0, VOCABULARY, (rows, CONTEXT), generator=torch.Generator().manual_seed(0)).numpy()
    batch = {"input_ids": ids, "labels": ids}
    trainer.step(batch, 1e-4)
    return [seconds_of(lambda: trainer.step(batch, 1e-4)) for _ in range(repeats)]


def seconds_of(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def hashing() -> float:
    """Return the seconds to hash a byte: a worker that may be asked for results later commits to them at once."""
    data = bytes(1 << 26)
    return seconds_of(lambda: hashlib.sha256(data).digest()) / len(data)


def told(taken: Sequence[float]) -> str:
    return f"{statistics.median(taken):.3f} ({min(taken):.3f}-{max(taken):.3f})"


def tell_step(name: str, sizes: dict[str, Any], rows: int, repeats: int) -> None:
    """Print one row of the table."""
    config = describe({"architecture": "gpt2", "config": sizes}, VOCABULARY, CONTEXT)
    found = list(products({**config, "num_attention_heads": sizes["num_heads"], "hidden_size": sizes["hidden_size"],
                           "num_hidden_layers": sizes["num_layers"]}, rows))  # fmt: skip
    step, checks = repeating(config, rows, repeats), [checking(found) for _ in range(repeats)]
    sent = sum(product.result_bytes for product in found)
    light = sum(product.result_bytes for product in found if not product.weights)
    own = sum(product.operations for product in found if product.weights) / sum(one.operations for one in found)
    part = statistics.median(checks) / statistics.median(step)
    print(
        f"{name:<19}{told(step):>23}{told(checks):>23}{part:>7.0%}{sent / 1e6:>9,.0f}{sent / LINK_BYTES:>8.1f}"
        f"{sent * hashing():>9.2f}{light / 1e6:>12,.0f}{light / LINK_BYTES:>8.1f}{own:>12.0%}",
        flush=True,
    )


def tell_blindness(repeats: int) -> None:
    """Print how large a change of one result stays below the difference that rounding alone makes."""
    print("\na change of one result below this part of the results' rms is not told from rounding")
    print(f"{'inner':>7}   {'largest |C r - A (B r)| over the rms':>12}")
    for inner in (256, 1024, 4096):
        seen = []
        for seed in range(repeats):
            torch.manual_seed(seed)
            left, right = torch.randn(512, inner), torch.randn(inner, 1024)
            result = left @ right
            seen.append(check(left, right, result) / float(result.square().mean().sqrt()))
        print(f"{inner:>7}   {statistics.median(seen):>12.1e} ({min(seen):.1e}-{max(seen):.1e})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    models, rows = MODELS, ROWS
    if options.quick:
        models, rows, options.repeats = {"1 layer of 32": {"hidden_size": 32, "num_layers": 1, "num_heads": 2}}, 1, 1
    torch.set_num_threads(1)
    print(look())
    print(f"a step on {rows} rows of {CONTEXT} tokens, one thread, {options.repeats} repeats")
    print(
        f"{'model':<19}{'repeat, s':>23}{'check, s':>23}{'part':>7}{'MB sent':>9}{'s':>8}{'hash, s':>9}"
        f"{'MB, no dW':>12}{'s':>8}{'dW of step':>12}"
    )
    for name, sizes in models.items():
        tell_step(name, sizes, rows, options.repeats)
    tell_blindness(options.repeats)


if __name__ == "__main__":
    main()
