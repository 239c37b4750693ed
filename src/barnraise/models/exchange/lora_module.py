"""Low-rank adapters in a module, through peft; imports torch."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from barnraise.core.errors import ModelError
from barnraise.models.exchange.base_model import FLOAT32
from barnraise.models.exchange.compact_layers import compacted
from barnraise.models.exchange.frozen_base import loaded_as, quietly
from barnraise.models.exchange.layout import Layout
from barnraise.models.exchange.lora import ADAPTER, B_ONLY, target_names
from barnraise.models.exchange.module import ModuleExchange
from barnraise.models.linears import ALL

_STEP = 2.0**-24


class LoraExchange(ModuleExchange):
    """Puts an adapter beside each targeted linear layer; see `lora` for the options.

    B starts at 0, and A is uniform within 1 / sqrt(inputs), as peft draws it, but from `seed` by counters: all machines
    draw the same.
    """

    def __init__(self, rank: int, alpha: float, targets: str, dropout: float, train: str, seed: int, base: str) -> None:
        self.rank, self.alpha, self.dropout = rank, alpha, dropout
        self.targets = target_names({"targets": targets})
        self.train, self.seed, self.base, self.dtype = train, seed, base, loaded_as(base)

    def prepare(self, module: nn.Module, layout: Layout) -> nn.Module:
        """Return the module with adapters; ModelError where peft is missing."""
        with quietly():
            return self._prepared(module)

    def _prepared(self, module: nn.Module) -> nn.Module:
        try:
            from peft import LoraConfig, get_peft_model
        except ImportError:
            raise ModelError(
                "the run trains adapters, which needs peft; run `pip install 'barnraise[adapters]'`"
            ) from None
        module = module.requires_grad_(False)
        if self.base != FLOAT32:
            module = compacted(module, self.base)
        config = LoraConfig(
            task_type="CAUSAL_LM",
            r=self.rank,
            lora_alpha=self.alpha,
            lora_dropout=self.dropout,
            target_modules=ALL if ALL in self.targets else self.targets,
            fan_in_fan_out=_transposed(module),
        )
        wrapped: Any = get_peft_model(module, config, adapter_name=ADAPTER)
        self._draw(wrapped)
        result: nn.Module = wrapped.train()
        return result

    def whole(self, module: nn.Module) -> nn.Module:
        with quietly():
            merged: nn.Module = cast(Any, module).merge_and_unload()
        return merged

    @torch.no_grad()
    def _draw(self, module: nn.Module) -> None:
        """Give the adapters their initial values, and freeze A where only B is trained."""
        number = 0
        for name, parameter in module.named_parameters():
            if f".lora_A.{ADAPTER}." in name:
                parameter.copy_(drawn(self.seed, number, tuple(parameter.shape)))
                parameter.requires_grad_(self.train != B_ONLY)
                number += 1
            elif f".lora_B.{ADAPTER}." in name:
                parameter.zero_()


def drawn(seed: int, number: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the values of the adapter `number`'s A, float32 [rank, inputs], uniform within 1 / sqrt(inputs)."""
    bits = np.random.Philox(key=[seed, number]).random_raw(math.prod(shape)) >> np.uint64(40)
    share = bits.astype(np.float64) * _STEP  # 24 bits: exact in float32
    values = (2.0 * share - 1.0) / math.sqrt(shape[-1])
    return torch.from_numpy(values.astype(np.float32)).view(shape)


def _transposed(module: nn.Module) -> bool:
    """Return whether the linear layers keep their matrix as [inputs, outputs], as those of GPT-2 do."""
    from transformers.pytorch_utils import Conv1D

    return any(isinstance(layer, Conv1D) for layer in module.modules())
