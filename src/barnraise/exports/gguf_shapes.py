"""How llama.cpp lays out the architectures that can be written as GGUF: names, hyperparameters, order of the rows.

Torch-free. The names are those of llama.cpp's own converter; a file with others does not load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from barnraise.core.errors import ModelError

Config = Mapping[str, Any]
Array = npt.NDArray[Any]
Fields = dict[str, int | float]


@dataclass(frozen=True)
class GgufShape:
    """The layout of one architecture.

    `blocks` begins the names of tensors in a block. `inside` maps their last parts, `outside` the names of all others.
    `fields` are the hyperparameters, `read_as` the same under the names of transformers' config, by which transformers
    reads them back. `refusals` yields what llama.cpp cannot do of a config.
    """

    name: str
    blocks: str
    outside: Mapping[str, str]
    inside: Mapping[str, str]
    fields: Callable[[Config], Fields]
    read_as: Mapping[str, str]
    refusals: Callable[[Config], Iterator[str]]
    transposed: frozenset[str] = frozenset()
    rotated: bool = False

    def rename(self, name: str) -> str:
        """Return the name in a GGUF file of a parameter."""
        if name in self.outside:
            return self.outside[name]
        number, _, rest = name.removeprefix(self.blocks).partition(".")
        part, _, kind = rest.rpartition(".")
        if not name.startswith(self.blocks) or part not in self.inside:
            raise ModelError(f"a {self.name} in GGUF has no place for {name}; export it as model")
        return f"blk.{number}.{self.inside[part]}.{kind}"

    def lay_out(self, name: str, values: Array, config: Config) -> Array:
        """Return a parameter as llama.cpp reads it: matrices as [outputs, inputs], and the order of rotated rows."""
        part = name.removeprefix(self.blocks).partition(".")[2].rpartition(".")[0]
        if part in self.transposed and values.ndim == 2:
            return values.T
        if self.rotated and part in ("self_attn.q_proj", "self_attn.k_proj"):
            key = "num_attention_heads" if part.endswith("q_proj") else "num_key_value_heads"
            return interleave(values, int(config[key]))
        return values


def interleave(values: Array, heads: int) -> Array:
    """Return the rows of each head with those of its first and second half in turn.

    Transformers rotates a head's row i with row i + half, llama.cpp's Llama rotates rows 2i and 2i + 1.

    >>> import numpy
    >>> interleave(numpy.arange(8), 2).tolist()
    [0, 2, 1, 3, 4, 6, 5, 7]
    """
    halves = values.reshape(heads, 2, len(values) // heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


def shape_of(config: Config) -> GgufShape:
    """Return the layout of a model; ModelError with a remedy where llama.cpp has none for it."""
    kind = str(config["model_type"])
    shape = SHAPES.get(kind)
    if shape is None:
        raise ModelError(
            f"barnraise writes GGUF for {', '.join(SHAPES)}, and this model is a {kind}; export it with --as model, "
            "which transformers loads" + _other_way(kind)
        )
    if refused := list(shape.refusals(config)):
        raise ModelError(
            f"llama.cpp has no {kind} with {' and '.join(refused)}; export it with --as model, which transformers loads"
        )
    return shape


def _other_way(kind: str) -> str:
    if kind in ("gpt_neo", "opt"):
        return f"; llama.cpp itself has no {kind}"
    return f", and try llama.cpp's convert_hf_to_gguf.py, which may know a {kind}"


def _unlike(config: Config, **usual: object) -> Iterator[str]:
    """Yield the keys of a config that do not have the usual value, which may be a tuple of several."""
    for key, value in usual.items():
        allowed = value if isinstance(value, tuple) else (value,)
        if key in config and config[key] not in allowed:
            yield f"{key}: {config[key]}"


def rope_kind(config: Config) -> str:
    """Return the kind of rotary embedding of a config."""
    return str((config.get("rope_parameters") or {}).get("rope_type") or "default")


_DECODER = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_DECODER_BLOCK = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_DECODER_READ = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}


def _decoder_fields(config: Config) -> Fields:
    size = int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])
    fields: Fields = {key: config[own] for key, own in _DECODER_READ.items()}
    fields["rope.freq_base"] = float((config.get("rope_parameters") or {}).get("rope_theta") or 10000.0)
    fields["rope.dimension_count"] = size
    return fields | {"attention.key_length": size, "attention.value_length": size}


def _llama_refusals(config: Config) -> Iterator[str]:
    yield from _unlike(config, hidden_act="silu", attention_bias=False, mlp_bias=False)
    if rope_kind(config) not in ("default", "llama3"):
        yield f"rope_type: {rope_kind(config)}"


def _qwen_refusals(config: Config) -> Iterator[str]:
    yield from _unlike(config, hidden_act="silu", use_sliding_window=False, attention_bias=False)
    if rope_kind(config) != "default":
        yield f"rope_type: {rope_kind(config)}"


_GPT2_READ = {
    "context_length": "n_ctx",
    "embedding_length": "n_embd",
    "block_count": "n_layer",
    "attention.head_count": "n_head",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
}


def _gpt2_fields(config: Config) -> Fields:
    return {
        "context_length": config["n_positions"],
        "embedding_length": config["n_embd"],
        "block_count": config["n_layer"],
        "feed_forward_length": config["n_inner"] or 4 * config["n_embd"],
        "attention.head_count": config["n_head"],
        "attention.layer_norm_epsilon": config["layer_norm_epsilon"],
    }


def _gpt2_refusals(config: Config) -> Iterator[str]:
    yield from _unlike(
        config,
        activation_function=("gelu_new", "gelu_pytorch_tanh"),
        scale_attn_weights=True,
        scale_attn_by_inverse_layer_idx=False,
    )


SHAPES: Mapping[str, GgufShape] = {
    "gpt2": GgufShape(
        "gpt2",
        "transformer.h.",
        {
            "transformer.wte.weight": "token_embd.weight",
            "transformer.wpe.weight": "position_embd.weight",
            "transformer.ln_f.weight": "output_norm.weight",
            "transformer.ln_f.bias": "output_norm.bias",
            "lm_head.weight": "output.weight",
        },
        {
            "ln_1": "attn_norm",
            "attn.c_attn": "attn_qkv",
            "attn.c_proj": "attn_output",
            "ln_2": "ffn_norm",
            "mlp.c_fc": "ffn_up",
            "mlp.c_proj": "ffn_down",
        },
        fields=_gpt2_fields,
        read_as=_GPT2_READ,
        refusals=_gpt2_refusals,
        transposed=frozenset({"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}),
    ),
    "llama": GgufShape(
        "llama",
        "model.layers.",
        _DECODER,
        _DECODER_BLOCK,
        fields=_decoder_fields,
        read_as=_DECODER_READ | {"rope.dimension_count": "head_dim"},
        refusals=_llama_refusals,
        rotated=True,
    ),
    "qwen2": GgufShape(
        "qwen2",
        "model.layers.",
        _DECODER,
        _DECODER_BLOCK,
        fields=_decoder_fields,
        read_as=_DECODER_READ,
        refusals=_qwen_refusals,
    ),
    "qwen3": GgufShape(
        "qwen3",
        "model.layers.",
        _DECODER,
        _DECODER_BLOCK | {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"},
        fields=_decoder_fields,
        read_as=_DECODER_READ,
        refusals=_qwen_refusals,
    ),
}
"""The layouts by `model_type` of transformers."""
