"""A tiny GPT with and without adapters, and batches for it, for tests of privacy."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel


def gpt(*, adapters: bool) -> Any:
    """Return a GPT of two layers without dropout; with adapters (whose B is not zero) they alone are trained."""
    torch.manual_seed(0)
    sizes = GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    sizes.resid_pdrop = sizes.embd_pdrop = sizes.attn_pdrop = 0.0
    module: Any = GPT2LMHeadModel(sizes)
    if adapters:
        from peft import LoraConfig, get_peft_model

        wanted = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True)
        module = get_peft_model(module.requires_grad_(False), wanted)
        for name, value in module.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(value, std=0.1)
    return module.train()


def batch_of_tokens(rows: int, length: int = 12) -> dict[str, torch.Tensor]:
    """Return random rows as a batch of a causal language model."""
    ids = torch.randint(0, 40, (rows, length), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "labels": ids.clone()}
