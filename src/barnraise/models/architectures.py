"""The five built-in architectures: their config keys, and every parameter's name and shape.

With these a run file is checked, and a model's exact size is known in microseconds, without torch or transformers,
whose import takes seconds. Any other causal language model of transformers is described by `generic`, which is slower.
The tables hold the keys that matter to a language model, with transformers' defaults but for dropout, which is 0; tests
compare keys, defaults and shapes with transformers itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Config = Mapping[str, Any]
Shapes = Iterator[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class Architecture:
    """The description of one architecture.

    `names` maps common keys (vocab_size, hidden_size, num_layers, num_heads, intermediate_size, positions) to its own,
    as far as it has them; `defaults` lists its own keys; `shapes` yields the parameters of a whole config in the order
    of `named_parameters()`, tied ones once; `complete`, if any, lets transformers derive missing keys. `dropout` has
    transformers' own defaults that are not 0: they hold for a checkpoint whose config.json names none. `buffer_bytes`
    is the size of the model's buffers: masks, tables of positions. `activation_bytes` is what a row keeps for its
    gradient, where that is not estimated from the sizes.
    """

    model_type: str
    names: Mapping[str, str]
    defaults: Mapping[str, Any]
    shapes: Callable[[Config], Shapes]
    complete: Callable[[Config], dict[str, Any]] | None = None
    dropout: Mapping[str, float] = field(default_factory=dict)
    buffer_bytes: Callable[[Config], int] = lambda config: 0
    activation_bytes: Callable[[Config], int] | None = None

    def get(self, config: Config, common: str) -> Any:
        """Return the value of a common key, None where the architecture has no such key."""
        return config.get(self.names[common]) if common in self.names else None


def is_dropout(key: str) -> bool:
    """Return whether a config key is a dropout share: resid_pdrop, hidden_dropout_prob, layerdrop ..."""
    return "dropout" in key or key.endswith(("pdrop", "layerdrop"))


def _linear(name: str, inputs: int, outputs: int, bias: bool = True, transposed: bool = False) -> Shapes:
    yield f"{name}.weight", (inputs, outputs) if transposed else (outputs, inputs)
    if bias:
        yield f"{name}.bias", (outputs,)


def _norm(name: str, size: int, affine: bool = True) -> Shapes:
    if affine:
        yield f"{name}.weight", (size,)
        yield f"{name}.bias", (size,)


def _head(config: Config, width: int) -> Shapes:
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], width)


def _gpt_neo(config: Config) -> Shapes:
    hidden, inner = config["hidden_size"], config["intermediate_size"] or 4 * config["hidden_size"]
    yield "transformer.wte.weight", (config["vocab_size"], hidden)
    yield "transformer.wpe.weight", (config["max_position_embeddings"], hidden)
    for layer in range(config["num_layers"]):
        block = f"transformer.h.{layer}"
        yield from _norm(f"{block}.ln_1", hidden)
        for name in ("k_proj", "v_proj", "q_proj", "out_proj"):
            yield from _linear(f"{block}.attn.attention.{name}", hidden, hidden, bias=name == "out_proj")
        yield from _norm(f"{block}.ln_2", hidden)
        yield from _linear(f"{block}.mlp.c_fc", hidden, inner)
        yield from _linear(f"{block}.mlp.c_proj", inner, hidden)
    yield from _norm("transformer.ln_f", hidden)
    yield from _head(config, hidden)


def _gpt_neo_buffers(config: Config) -> int:
    """Return the size of the causal masks: in each layer one byte for each pair of positions."""
    return int(config["num_layers"] * config["max_position_embeddings"] ** 2)


def _gpt2(config: Config) -> Shapes:
    hidden, inner = config["n_embd"], config["n_inner"] or 4 * config["n_embd"]
    yield "transformer.wte.weight", (config["vocab_size"], hidden)
    yield "transformer.wpe.weight", (config["n_positions"], hidden)
    for layer in range(config["n_layer"]):
        block = f"transformer.h.{layer}"
        yield from _norm(f"{block}.ln_1", hidden)
        yield from _linear(f"{block}.attn.c_attn", hidden, 3 * hidden, transposed=True)
        yield from _linear(f"{block}.attn.c_proj", hidden, hidden, transposed=True)
        yield from _norm(f"{block}.ln_2", hidden)
        yield from _linear(f"{block}.mlp.c_fc", hidden, inner, transposed=True)
        yield from _linear(f"{block}.mlp.c_proj", inner, hidden, transposed=True)
    yield from _norm("transformer.ln_f", hidden)
    yield from _head(config, hidden)


def _opt(config: Config) -> Shapes:
    hidden, inner, bias = config["hidden_size"], config["ffn_dim"], config["enable_bias"]
    word = config["word_embed_proj_dim"] or hidden
    affine = config["layer_norm_elementwise_affine"]
    yield "model.decoder.embed_tokens.weight", (config["vocab_size"], word)
    yield "model.decoder.embed_positions.weight", (config["max_position_embeddings"] + 2, hidden)
    if word != hidden:
        yield from _linear("model.decoder.project_out", hidden, word, bias=False)
        yield from _linear("model.decoder.project_in", word, hidden, bias=False)
    if config["do_layer_norm_before"] and not config["_remove_final_layer_norm"]:
        yield from _norm("model.decoder.final_layer_norm", hidden, affine)
    for layer in range(config["num_hidden_layers"]):
        block = f"model.decoder.layers.{layer}"
        for name in ("k_proj", "v_proj", "q_proj", "out_proj"):
            yield from _linear(f"{block}.self_attn.{name}", hidden, hidden, bias)
        yield from _norm(f"{block}.self_attn_layer_norm", hidden, affine)
        yield from _linear(f"{block}.fc1", hidden, inner, bias)
        yield from _linear(f"{block}.fc2", inner, hidden, bias)
        yield from _norm(f"{block}.final_layer_norm", hidden, affine)
    yield from _head(config, word)


def _bloom(config: Config) -> Shapes:
    hidden = config["hidden_size"]
    yield "transformer.word_embeddings.weight", (config["vocab_size"], hidden)
    yield from _norm("transformer.word_embeddings_layernorm", hidden)
    for layer in range(config["n_layer"]):
        block = f"transformer.h.{layer}"
        yield from _norm(f"{block}.input_layernorm", hidden)
        yield from _linear(f"{block}.self_attention.query_key_value", hidden, 3 * hidden)
        yield from _linear(f"{block}.self_attention.dense", hidden, hidden)
        yield from _norm(f"{block}.post_attention_layernorm", hidden)
        yield from _linear(f"{block}.mlp.dense_h_to_4h", hidden, 4 * hidden)
        yield from _linear(f"{block}.mlp.dense_4h_to_h", 4 * hidden, hidden)
    yield from _norm("transformer.ln_f", hidden)
    yield from _head(config, hidden)


def _llama(config: Config) -> Shapes:
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    width = config["head_dim"] or hidden // heads
    query, key = heads * width, (config["num_key_value_heads"] or heads) * width
    bias, inner_bias = config["attention_bias"], config["mlp_bias"]
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        block = f"model.layers.{layer}"
        yield from _linear(f"{block}.self_attn.q_proj", hidden, query, bias)
        yield from _linear(f"{block}.self_attn.k_proj", hidden, key, bias)
        yield from _linear(f"{block}.self_attn.v_proj", hidden, key, bias)
        yield from _linear(f"{block}.self_attn.o_proj", query, hidden, bias)
        yield from _linear(f"{block}.mlp.gate_proj", hidden, inner, inner_bias)
        yield from _linear(f"{block}.mlp.up_proj", hidden, inner, inner_bias)
        yield from _linear(f"{block}.mlp.down_proj", inner, hidden, inner_bias)
        yield f"{block}.input_layernorm.weight", (hidden,)
        yield f"{block}.post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    yield from _head(config, hidden)


def _llama_buffers(config: Config) -> int:
    """Return the size of two tables of rotary frequencies, float32: one for each pair of a head's elements."""
    width = config["head_dim"] or config["hidden_size"] // config["num_attention_heads"]
    return int(2 * 4 * len(range(0, width, 2)))


_SPECIAL: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "use_cache": True}

ARCHITECTURES: Mapping[str, Architecture] = {
    entry.model_type: entry
    for entry in (
        Architecture(
            "gpt_neo",
            names={
                "vocab_size": "vocab_size",
                "hidden_size": "hidden_size",
                "num_layers": "num_layers",
                "num_heads": "num_heads",
                "intermediate_size": "intermediate_size",
                "positions": "max_position_embeddings",
            },
            defaults=_SPECIAL
            | {"vocab_size": 50257, "max_position_embeddings": 2048, "hidden_size": 2048, "num_layers": 24}
            | {"num_heads": 16, "intermediate_size": None, "attention_types": None, "window_size": 256}
            | {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "initializer_range": 0.02}
            | {"resid_dropout": 0.0, "embed_dropout": 0.0, "attention_dropout": 0.0, "tie_word_embeddings": True},
            shapes=_gpt_neo,
            buffer_bytes=_gpt_neo_buffers,
        ),
        Architecture(
            "gpt2",
            names={
                "vocab_size": "vocab_size",
                "hidden_size": "n_embd",
                "num_layers": "n_layer",
                "num_heads": "n_head",
                "intermediate_size": "n_inner",
                "positions": "n_positions",
            },
            defaults=_SPECIAL
            | {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None}
            | {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "initializer_range": 0.02}
            | {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "reorder_and_upcast_attn": False}
            | {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "tie_word_embeddings": True},
            shapes=_gpt2,
            dropout={"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1},
        ),
        Architecture(
            "opt",
            names={
                "vocab_size": "vocab_size",
                "hidden_size": "hidden_size",
                "num_layers": "num_hidden_layers",
                "num_heads": "num_attention_heads",
                "intermediate_size": "ffn_dim",
                "positions": "max_position_embeddings",
            },
            defaults=_SPECIAL
            | {"vocab_size": 50272, "max_position_embeddings": 2048, "hidden_size": 768, "num_hidden_layers": 12}
            | {"num_attention_heads": 12, "ffn_dim": 3072, "word_embed_proj_dim": None, "activation_function": "relu"}
            | {"do_layer_norm_before": True, "_remove_final_layer_norm": False, "layer_norm_elementwise_affine": True}
            | {"enable_bias": True, "init_std": 0.02, "dropout": 0.0, "attention_dropout": 0.0, "layerdrop": 0.0}
            | {"tie_word_embeddings": True},
            shapes=_opt,
            dropout={"dropout": 0.1},
        ),
        Architecture(
            "bloom",
            names={
                "vocab_size": "vocab_size",
                "hidden_size": "hidden_size",
                "num_layers": "n_layer",
                "num_heads": "n_head",
            },
            defaults=_SPECIAL
            | {"vocab_size": 250880, "hidden_size": 64, "n_layer": 2, "n_head": 8, "layer_norm_epsilon": 1e-5}
            | {"initializer_range": 0.02, "apply_residual_connection_post_layernorm": False, "pretraining_tp": 1}
            | {"slow_but_exact": False, "hidden_dropout": 0.0, "attention_dropout": 0.0, "tie_word_embeddings": True},
            shapes=_bloom,
        ),
        Architecture(
            "llama",
            names={
                "vocab_size": "vocab_size",
                "hidden_size": "hidden_size",
                "num_layers": "num_hidden_layers",
                "num_heads": "num_attention_heads",
                "intermediate_size": "intermediate_size",
                "positions": "max_position_embeddings",
            },
            defaults=_SPECIAL
            | {"vocab_size": 32000, "max_position_embeddings": 2048, "hidden_size": 4096, "num_hidden_layers": 32}
            | {"num_attention_heads": 32, "num_key_value_heads": None, "head_dim": None, "intermediate_size": 11008}
            | {"hidden_act": "silu", "rms_norm_eps": 1e-6, "initializer_range": 0.02, "rope_parameters": None}
            | {"attention_bias": False, "mlp_bias": False, "pretraining_tp": 1, "attention_dropout": 0.0}
            | {"tie_word_embeddings": False},
            shapes=_llama,
            buffer_bytes=_llama_buffers,
        ),
    )
}
