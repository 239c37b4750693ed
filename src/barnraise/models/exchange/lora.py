"""Low-rank adapters as what travels (LoRA, Hu et al. 2021, arXiv 2106.09685, equation 3); torch-free.

Beside a frozen linear layer of `inputs` and `outputs`, A is [rank, inputs] and B [outputs, rank]; the layer's output
gets alpha / rank * B A x. With `train: b_only` A stays as the seed draws it: half of the bytes travel, and the average
of several B is the average of the updates B A. The average of A and of B apart is not (FLoRA, arXiv 2409.05976).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from barnraise.core.registry import Option
from barnraise.models.exchange.base_model import BASE_OPTION
from barnraise.models.linears import ALL, targeted

PREFIX = "base_model.model."
"""The beginning of the names of a model's parameters once peft has put adapters into it."""

ADAPTER = "default"
"""The name of the adapter within peft."""

BOTH, B_ONLY = "both", "b_only"

OPTIONS = (
    Option("rank", int, 16, "Rank of the adapters.", minimum=1, maximum=4096),
    Option("alpha", float, 32.0, "Scale of an adapter's output, times its rank.", minimum=0.0, maximum=1e6),
    Option("targets", str, ALL, "Last names of the layers with adapters, with commas."),
    Option("dropout", float, 0.0, "Dropout of an adapter's input.", minimum=0.0, maximum=0.9),
    Option("train", str, BOTH, "The trained matrices of an adapter.", choices=(BOTH, B_ONLY)),
    Option("seed", int, 0, "Seeds A."),
    BASE_OPTION,
)


def leaves(config: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the names and shapes of the trained matrices; ModelError when a target is not there."""
    rank = options["rank"]
    for layer in targeted(config, target_names(options)):
        if options["train"] == BOTH:
            yield f"{PREFIX}{layer.name}.lora_A.{ADAPTER}.weight", (rank, layer.inputs)
        yield f"{PREFIX}{layer.name}.lora_B.{ADAPTER}.weight", (layer.outputs, rank)


def target_names(options: Mapping[str, Any]) -> list[str]:
    """Return the targets of an exchange's options."""
    return [name.strip() for name in options["targets"].split(",") if name.strip()]
