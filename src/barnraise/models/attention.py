"""Attention within the examples of a packed row, for each architecture.

Most models of transformers derive it from positions that begin again with each example. Others take a mask. The rest
cannot keep examples apart, so a row has one example.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnraise.core.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor, nn

POSITIONS, MASK = "positions", "mask"

_POSITIONS = """
    gpt2 gpt_neo gpt_neox gptj codegen llama mistral qwen2 qwen3 phi phi3 gemma gemma2 gemma3_text olmo2 granite smollm3
"""
SEPARATES: Mapping[str, str] = dict.fromkeys(_POSITIONS.split(), POSITIONS) | dict.fromkeys(
    ("opt", "falcon", "mpt", "xglm"), MASK
)
"""How the models of a type keep the examples of a row apart; a test compares each with the examples alone."""


def packs(model_type: str) -> bool:
    """Return whether several examples may share a row of such a model."""
    return model_type in SEPARATES


def apart(module: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the `inputs` of a packed batch with all that the model needs to keep its examples apart.

    Without `position_ids` a row is one example. ModelError for a model that cannot.
    """
    found = dict(inputs)
    if "position_ids" not in found:
        return found
    config = getattr(module, "config", None)
    how = SEPARATES.get(getattr(config, "model_type", ""))
    if how is None:
        name = getattr(config, "model_type", type(module).__name__)
        raise ModelError(f"a {name} cannot keep the examples of a packed row apart; make the dataset for this model")
    if how == MASK:
        eager = getattr(config, "_attn_implementation", "eager") == "eager"
        found["attention_mask"] = _mask(found["position_ids"], eager)
    return found


def _mask(position_ids: Tensor, additive: bool) -> Tensor:
    """Return [rows, 1, length, length]: whether a position sees another, or what is added to their score."""
    import torch

    length = position_ids.shape[1]
    examples = (position_ids == 0).cumsum(1)
    earlier = torch.ones(length, length, dtype=torch.bool, device=position_ids.device).tril()
    seen = ((examples[:, :, None] == examples[:, None, :]) & earlier)[:, None]
    return torch.where(seen, 0.0, torch.finfo(torch.float32).min) if additive else seen
