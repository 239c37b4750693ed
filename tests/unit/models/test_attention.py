"""Examples in one row do not see each other, in any architecture that packs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.campaigns import some
from transformers import AutoConfig, AutoModelForCausalLM

from barnraise.core.errors import ModelError
from barnraise.models.attention import SEPARATES, apart

VOCABULARY = 50
LENGTHS = (5, 9, 1, 7)
SHAPE = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": None,
}  # fmt: skip
GPT = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
OWN: dict[str, dict[str, Any]] = {
    "gpt2": GPT,
    "gptj": GPT | {"rotary_dim": 4},
    "codegen": GPT | {"rotary_dim": 4},
    "gpt_neo": {
        "vocab_size": VOCABULARY, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "window_size": 4,
        "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 64,
    },
    "gpt_neox": {name: value for name, value in SHAPE.items() if name != "num_key_value_heads"},
    "opt": {
        "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64,
        "max_position_embeddings": 64, "word_embed_proj_dim": 32,
    },
    "mpt": {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64},
    "falcon": {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    "xglm": {
        "vocab_size": VOCABULARY, "d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 64,
        "max_position_embeddings": 64,
    },
    "mistral": SHAPE | {"sliding_window": 4},
    "gemma": SHAPE | {"head_dim": 8},
    "gemma2": SHAPE | {"head_dim": 8, "sliding_window": 4},
    "gemma3_text": SHAPE | {"head_dim": 8, "sliding_window": 4},
}  # fmt: skip


def model(model_type: str, attention: str) -> Any:
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **OWN.get(model_type, SHAPE))
    try:
        return AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    except ValueError as error:
        if "does not support" not in str(error):
            raise
        pytest.skip(f"{model_type} has no {attention} attention")


def logits(module: Any, examples: list[torch.Tensor]) -> torch.Tensor:
    """Return the logits of the examples as one row."""
    positions = torch.cat([torch.arange(example.shape[1]) for example in examples])[None]
    inputs = apart(module, {"input_ids": torch.cat(examples, 1), "position_ids": positions})
    found: torch.Tensor = module(**inputs, use_cache=False).logits
    return found


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("model_type", some(("gpt2", "gpt_neo", "llama", "qwen2", "opt"), SEPARATES))
@torch.no_grad()
def test_a_packed_row_gives_the_logits_of_its_examples_alone(model_type: str, attention: str) -> None:
    module = model(model_type, attention)
    chance = torch.Generator().manual_seed(0)
    examples = [torch.randint(0, VOCABULARY, (1, length), generator=chance) for length in LENGTHS]
    packed = logits(module, examples)
    alone = torch.cat([module(input_ids=example, use_cache=False).logits for example in examples], 1)
    torch.testing.assert_close(packed, alone, atol=2e-6, rtol=1e-4)
    others = [torch.randint(0, VOCABULARY, (1, 5), generator=chance), *examples[1:]]
    assert torch.equal(logits(module, others)[:, 5:], packed[:, 5:]), "another first example changes nothing behind it"


@torch.no_grad()
def test_a_model_that_cannot_keep_examples_apart_is_refused() -> None:
    config = AutoConfig.for_model("bloom", vocab_size=VOCABULARY, hidden_size=32, n_layer=1, n_head=4)
    module = AutoModelForCausalLM.from_config(config)
    with pytest.raises(ModelError, match="a bloom cannot keep the examples of a packed row apart"):
        logits(module, [torch.ones(1, 3, dtype=torch.long)] * 2)
