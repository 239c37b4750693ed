"""The parts of a causal language model that show its inputs: the embedding, the output layer, the attentions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from barnraise.core.errors import InputError
from barnraise.models.exchange.layout import Layout

_QUERY = re.compile(r"(?:^|\.)(?:c_attn|q_proj|query_key_value)$")
_BESIDE = {"q_proj": ("k_proj", "v_proj")}


@dataclass(frozen=True)
class Projection:
    """A layer's matrices that read the same inputs: the query, and what else multiplies them.

    `names` are the weights, the query's first. `transposed`: they are [inputs, outputs]. `fused`: the first holds the
    query in its first third of outputs.
    """

    module: str
    names: tuple[str, ...]
    transposed: bool
    fused: bool


@dataclass(frozen=True)
class Anatomy:
    """The names of a model's embedding, output layer (None: tied to the embedding), and projections by layer."""

    embedding: str
    output: str | None
    projections: tuple[Projection, ...]

    @classmethod
    def of(cls, module: Any, layout: Layout) -> Anatomy:
        """Return the anatomy of a model; InputError unless it embeds tokens and all these tensors travel."""
        travels = {leaf.name for leaf in layout.leaves}
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        embedding = names.get(id(getattr(module.get_input_embeddings(), "weight", None)), "")
        head = module.get_output_embeddings()
        output = names.get(id(head.weight)) if head is not None else None
        projections = tuple(_projections(module))
        if embedding not in travels or not projections:
            raise InputError(
                "attacks need a causal language model whose embedding and attention travel; "
                "attack a run without an adapter, of an architecture such as gpt2 or llama"
            )
        return cls(embedding, None if output == embedding else output, projections)


def _projections(module: nn.Module) -> Any:
    known = dict(module.named_modules())
    for name, layer in known.items():
        if not _QUERY.search(name):
            continue
        stem, _, last = name.rpartition(".")
        beside = tuple(f"{stem}.{other}.weight" for other in _BESIDE.get(last, ()))
        weight: Any = layer.weight
        transposed = not isinstance(layer, nn.Linear)
        outputs = weight.shape[1 if transposed else 0]
        inputs = weight.shape[0 if transposed else 1]
        yield Projection(name, (f"{name}.weight", *beside), transposed, fused=outputs == 3 * inputs)


def readings(projection: Projection, parts: dict[str, Tensor], query_only: bool = False) -> Tensor:
    """Return the gradient rows of a layer's matrices, [outputs, inputs]: each is a sum of the inputs of the layer.

    dL/dW = sum over positions of (dL/d output) (input)^T for y = W x, so the rows span a part of the inputs' span
    (Petrov et al. 2024, "DAGER", theorem 3.1).
    """
    found = [parts[name].T if projection.transposed else parts[name] for name in projection.names]
    if query_only:
        found = found[:1]
        if projection.fused:
            found[0] = found[0][: len(found[0]) // 3]
    return torch.cat(found)


class _Reached(Exception):
    """Ends a forward pass at the layer that was wanted."""


def layer_inputs(module: nn.Module, projection: Projection, **inputs: Tensor) -> Tensor:
    """Return the inputs of a projection for the model's `inputs`: [rows, length, hidden]; gradients flow if wanted."""
    (given,) = inputs.values()
    everywhere = torch.ones(given.shape[:2], dtype=torch.long)  # else transformers warns of ids that may be padding
    kept = list[Tensor]()

    def keep(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        kept.append(given[0])
        raise _Reached

    hook = module.get_submodule(projection.module).register_forward_pre_hook(keep)
    try:
        module(**inputs, attention_mask=everywhere, use_cache=False)
    except _Reached:
        pass
    finally:
        hook.remove()
    return kept[0]
