"""State and makers that the parts of `gpu.py` share."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from _cards import Clock
from _races import files
from large import DOWN, UP, status
from safetensors.torch import save_model
from torch import nn

from barnraise.assembly.engine_settings import worker_settings
from barnraise.config import load
from barnraise.core.types import Blob
from barnraise.models.build import build, build_exchanged
from barnraise.models.config import describe
from barnraise.models.exchange.catalog import CATALOG as EXCHANGES
from barnraise.models.exchange.catalog import LORA
from barnraise.models.exchange.record import Exchange
from barnraise.plan import resolve
from barnraise.wire.manifest import ExchangeName, FrozenPart
from barnraise.wire.messages import WorkerSettings
from barnraise.worker.building import make_trainer
from barnraise.worker.executor import WorkerExecutor
from barnraise.worker.options import Means

BASE = "model.safetensors"


@dataclass(frozen=True)
class Scale:
    """The sizes of the models, batches and runs that the benchmark measures."""

    run_model: dict[str, int]
    run_tokens: int
    run_batch: int
    run_context: int
    run_files: list[str]
    crowds: tuple[int, ...]  # how many workers share the device, run by run
    model: dict[str, int]  # the model of `speed` and `exchange`
    vocabulary: int
    context: int
    batch: int
    steps: int  # a turn
    turns: int
    exchange_steps: int  # steps of a task with an exchange


README = Path(__file__).parents[1] / "README.md"
FULL = Scale(
    {"hidden_size": 192, "num_layers": 4, "num_heads": 6}, 400_000, 8, 128, files("modules"), (1, 4),
    {"hidden_size": 768, "num_layers": 12, "num_heads": 12}, 50257, 1024, 8, 20, 5, 30,
)  # fmt: skip
QUICK = Scale(
    {"hidden_size": 32, "num_layers": 1, "num_heads": 2}, 2_048, 4, 32, [str(README)], (2,),
    {"hidden_size": 64, "num_layers": 2, "num_heads": 2}, 500, 64, 2, 3, 2, 3,
)  # fmt: skip


@dataclass
class Bench:
    """The state that all parts share: the device, the scale, the time, and the checks that failed."""

    device: str
    scale: Scale
    clock: Clock
    failed: list[str] = field(default_factory=list)
    rows: list[tuple[str, ...]] = field(default_factory=list)  # the table at the end

    @property
    def cuda(self) -> bool:
        return self.device.startswith("cuda")

    def check(self, holds: bool, text: str) -> None:
        if not holds:
            self.failed.append(text)
            print(f"  FAILED: {text}", flush=True)

    def attempt(self, name: str, part: Callable[[Bench], None]) -> None:
        """Run a part; its failure does not stop the other parts."""
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
        try:
            part(self)
        except Exception as error:
            traceback.print_exc()
            self.check(False, f"{name} broke down: {error}")

    def finish_work(self) -> None:
        """Wait until the device has finished its work."""
        if self.cuda:
            torch.cuda.synchronize()

    def memory(self) -> str:
        """The part's peak on the card, and the process's so far."""
        card = f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB on the card, " if self.cuda else ""
        return f"{card}{status('VmHWM') / 2**30:.2f} GiB of the process's main memory"


def settings_of(scale: Scale, context: int, **training: Any) -> WorkerSettings:
    """Return the settings that a run file with this module's codecs, and these keys of `training`, gives to workers."""
    run_file = {
        "model": {"architecture": "gpt2", "config": scale.model},
        "data": {"kind": "text", "files": ["README.md"], "context": context},
        "training": {
            "precision": "bfloat16", "compression": UP, "downlink_compression": DOWN, "error_feedback_keep": 1.0,
            "auto_tune": False, "batch_size": scale.batch,
        } | training,
    }  # fmt: skip
    return worker_settings(resolve(load(run_file)))


def make_executor(
    bench: Bench, model: dict[str, int], vocabulary: int, context: int, **training: Any
) -> tuple[WorkerExecutor, dict[str, Any]]:
    """Return a worker's executor with a fresh model on the device, and the model's config.

    With `adapter`, options of adapters, these alone are trained, beside the model.
    """
    resolved = dict(describe({"architecture": "gpt2", "config": model}, vocabulary, context))
    adapter = training.pop("adapter", None)
    settings = settings_of(bench.scale, context, **training)
    torch.manual_seed(0)
    with torch.device(bench.device):  # a CPU takes seconds to draw the parameters
        module = build(resolved)
    if adapter is not None:
        with tempfile.TemporaryDirectory() as folder:
            module = beside(module, resolved, Path(folder), adapter)
    dataset: Any = SimpleNamespace(meta=None)
    return WorkerExecutor(make_trainer(module, settings, Means(device=bench.device)), dataset, settings), resolved


def beside(model: nn.Module, resolved: dict[str, Any], folder: Path, adapter: dict[str, Any]) -> nn.Module:
    """Return the model with adapters, from a base in `folder`."""
    save_model(model, str(folder / BASE), metadata={"format": "pt"})
    part = FrozenPart(BASE, Blob("0" * 64, (folder / BASE).stat().st_size))
    name = ExchangeName(LORA, EXCHANGES.resolve(LORA, adapter), (part,))
    return build_exchanged(resolved, Exchange.of(resolved, name), folder)
