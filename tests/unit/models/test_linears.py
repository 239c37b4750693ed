"""The linear layers that an adapter can be put beside are those of the module, by names and widths."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn
from transformers.pytorch_utils import Conv1D

from barnraise.core.errors import ModelError
from barnraise.models.build import build
from barnraise.models.config import describe
from barnraise.models.linears import ALL, Linear, linears, targeted


def config(architecture: str) -> dict[str, Any]:
    given = {"hidden_size": 16, "num_layers": 2, "num_heads": 2}
    return describe({"architecture": architecture, "config": given}, 40, 16)


@pytest.mark.parametrize("architecture", ["gpt_neo", "gpt2", "opt", "bloom", "llama", "qwen2"])
def test_they_are_the_modules_but_for_the_output_layer(architecture: str) -> None:
    module: Any = build(config(architecture))
    found = []
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear) and layer is not module.get_output_embeddings():
            found.append(Linear(name, layer.in_features, layer.out_features))
        elif isinstance(layer, Conv1D):
            found.append(Linear(name, layer.nx, layer.nf))
    assert linears(config(architecture)) == found
    assert len(found) >= 8


def test_an_opt_whose_words_are_narrower_has_two_more() -> None:
    given = {"hidden_size": 16, "num_heads": 2, "num_layers": 2, "word_embed_proj_dim": 8}
    whole = describe({"architecture": "opt", "config": given}, 40, 16)
    module: Any = build(whole)
    found = {name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)}
    assert {layer.name for layer in linears(whole)} == found - {"lm_head"}


def test_targets_are_last_names() -> None:
    assert [layer.name for layer in targeted(config("llama"), ["v_proj"])] == [
        "model.layers.0.self_attn.v_proj",
        "model.layers.1.self_attn.v_proj",
    ]
    assert targeted(config("llama"), [ALL]) == linears(config("llama"))


def test_a_target_that_names_no_layer() -> None:
    with pytest.raises(ModelError, match=r"'q_prj' names no linear layer of a llama; did you mean 'q_proj'\?.*all-lin"):
        targeted(config("llama"), ["q_prj"])
    with pytest.raises(ModelError, match=r"'lm_head' names no linear layer of a gpt2 \(it has: c_attn, c_proj, c_fc;"):
        targeted(config("gpt2"), ["lm_head"])
