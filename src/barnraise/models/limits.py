"""Checks of a model config, which may come from another machine: types, sizes, combinations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from barnraise.core.errors import ModelError, nearest
from barnraise.models.architectures import ARCHITECTURES, Architecture, is_dropout
from barnraise.models.generic import check_code
from barnraise.models.problems import PROBLEM

SIZES = {
    "vocab_size": 1 << 24,
    "hidden_size": 1 << 20,
    "num_layers": 1 << 10,
    "num_heads": 1 << 16,
    "intermediate_size": 1 << 24,
    "positions": 1 << 24,
}
_ACTIVATIONS = (
    *("gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python", "gelu_pytorch_tanh"),
    *("laplace", "leaky_relu", "linear", "mish", "quick_gelu", "relu", "relu2", "relu6", "sigmoid", "silu", "swish"),
    *("tanh",),
)
_MAX_DEPTH, _MAX_ITEMS = 6, 20_000
_CODE = ("auto_map", "implementation", "quantization_config", "trust_remote_code", "use_kernels")


def check_values(entry: Architecture, resolved: Mapping[str, Any]) -> None:
    """Raise ModelError unless every key is the architecture's own and holds a value of its type and range."""
    for key, value in resolved.items():
        if key in ("model_type", PROBLEM):
            continue
        if key not in entry.defaults:
            raise ModelError(f"{entry.model_type} has no config key '{str(key)[:80]}'; leave it out")
        _check_plain(key, value)
        default = entry.defaults[key]
        if entry.complete is None and not _fits(value, default, key):
            kind = "a whole number" if default is None else type(default).__name__
            raise ModelError(f"{entry.model_type} config: {key} is {str(value)[:80]!r}, but must be {kind}")
        if isinstance(value, float) and not (math.isfinite(value) and value >= 0):
            raise ModelError(f"{entry.model_type} config: {key} is {value}, but must be a finite number from 0 on")
        if is_dropout(key) and value is not None and not 0 <= value < 1:
            raise ModelError(f"{entry.model_type} config: {key} is {value}, but must be from 0 to below 1")
        if key in ("activation_function", "hidden_act") and value not in _ACTIVATIONS:
            close = nearest(str(value), _ACTIVATIONS)
            hint = f"did you mean '{close}'?" if close else f"known: {', '.join(_ACTIVATIONS)}"
            raise ModelError(f"{entry.model_type} config: {key} is {str(value)[:80]!r}, which does not exist; {hint}")
    for common, limit in SIZES.items():
        size = entry.get(resolved, common)
        unset = size is None and entry.defaults.get(entry.names.get(common, "")) is None
        if not unset and not (type(size) is int and 1 <= size <= limit):
            raise ModelError(f"{entry.names[common]} is {size!r}, but must be a whole number from 1 to {limit}")


def check_sizes(entry: Architecture, resolved: Mapping[str, Any]) -> None:
    """Raise ModelError unless the sizes are compatible.

    `resolved` has passed `check_values`.
    """
    missing = [key for key in entry.defaults if key not in resolved] if entry.model_type in ARCHITECTURES else []
    if missing:
        raise ModelError(f"{entry.model_type} config lacks {', '.join(missing)}; make it with `describe`")
    hidden, layers, heads = (entry.get(resolved, name) for name in ("hidden_size", "num_layers", "num_heads"))
    if hidden is not None and heads is not None and hidden % heads:
        raise ModelError(
            f"hidden_size is {hidden}, but must be a multiple of the {heads} attention heads; "
            f"take {max(1, round(hidden / heads)) * heads}, or another number of heads"
        )
    if entry.model_type == "gpt_neo":
        _check_attention_types(resolved["attention_types"], layers)
    if entry.model_type == "llama":
        groups, width = resolved["num_key_value_heads"] or heads, resolved["head_dim"] or hidden // heads
        if not 1 <= groups <= heads or heads % groups:
            raise ModelError(f"num_key_value_heads is {groups}, but must divide the {heads} attention heads")
        if not 2 <= width <= SIZES["hidden_size"] or width % 2:
            raise ModelError(f"heads are {width} wide, but rotary positions need an even width; take fewer heads")
    word = resolved.get("word_embed_proj_dim")
    if word is not None and not 1 <= word <= SIZES["hidden_size"]:
        raise ModelError(f"word_embed_proj_dim is {word}, but must be from 1 to {SIZES['hidden_size']}")


def check_data(entry: Architecture, resolved: Mapping[str, Any], vocab_size: int, context: int) -> None:
    """Raise ModelError unless the model can read rows of `context` tokens with ids below `vocab_size`."""
    vocabulary, positions = entry.get(resolved, "vocab_size"), entry.get(resolved, "positions")
    if vocabulary is not None and vocabulary < vocab_size:
        raise ModelError(
            f"vocab_size is {vocabulary}, but the data has {vocab_size} token ids; "
            "leave vocab_size out, or use the tokenizer that belongs to the model"
        )
    if positions is not None and positions < context:
        raise ModelError(
            f"{entry.names['positions']} is {positions}, but the data has rows of {context} tokens; "
            f"leave it out, or set the data's context to {positions} or less"
        )
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        ids = resolved.get(key)
        for token in ids if isinstance(ids, list) else [ids]:
            if token is not None and vocabulary is not None and not (type(token) is int and 0 <= token < vocabulary):
                raise ModelError(f"{key} is {token!r}, but must be a token id below {vocabulary}; leave it out")


def _check_attention_types(value: object, layers: int) -> None:
    remedy = f"make it cover {layers} layers, as [[['global'], {layers}]] does, or leave it out"
    total = 0
    for item in value if isinstance(value, list) else [None]:
        kinds, times = item if isinstance(item, list) and len(item) == 2 else (None, None)
        well_formed = isinstance(kinds, list) and kinds and all(kind in ("global", "local") for kind in kinds)
        if not well_formed or type(times) is not int or times < 1:
            raise ModelError(f"attention_types is {str(value)[:80]}; {remedy}")
        total += len(kinds or ()) * times
    if total != layers:
        raise ModelError(f"attention_types covers {total} layers, but the model has {layers}; {remedy}")


def _fits(value: Any, default: Any, key: str) -> bool:
    if key == "attention_types":
        return value is None or isinstance(value, list)
    if key == "rope_parameters":
        return value is None or isinstance(value, dict)
    if key == "eos_token_id" and isinstance(value, list):
        return all(type(token) is int for token in value)
    if default is None:
        return value is None or type(value) is int
    if isinstance(default, float):
        return type(value) in (int, float)
    return type(value) is type(default)


def _check_plain(key: str, value: Any, depth: int = 0) -> int:
    """Count the items of `value`; ModelError unless it is small JSON that names no code to fetch or run."""
    where = f"config key '{key}'"
    if depth > _MAX_DEPTH:
        raise ModelError(f"{where} is nested deeper than {_MAX_DEPTH}")
    items = 1
    if isinstance(value, dict):
        if isinstance(inner := value.get("model_type"), str):
            check_code(inner)  # a model within the model
        for name in value:
            if not isinstance(name, str) or any(word in name for word in _CODE):
                raise ModelError(f"{where} holds '{str(name)[:80]}', which a config from elsewhere may not set")
        items += sum(_check_plain(key, inner, depth + 1) for inner in value.values())
    elif isinstance(value, list):
        items += sum(_check_plain(key, inner, depth + 1) for inner in value)
    elif value is not None and not isinstance(value, (bool, int, float, str)):
        raise ModelError(f"{where} is a {type(value).__name__}, but must be plain JSON")
    if items > _MAX_ITEMS:
        raise ModelError(f"{where} holds more than {_MAX_ITEMS} items")
    return items
