"""Any other causal language model of transformers, described by its config class.

Importing that takes seconds.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barnraise.core.errors import ModelError, UnknownNameError, nearest
from barnraise.models.architectures import ARCHITECTURES, Architecture, Shapes, is_dropout
from barnraise.models.problems import CATALOG, CAUSAL, MASKED, SEQ2SEQ

_FETCHES = re.compile(r"\b(get_kernel|lazy_load_kernel|load_\w*cuda_kernels?|cpp_extension)\b")
"""Functions of transformers and torch that fetch code from a hub, or compile it."""

_CANDIDATES = {
    "vocab_size": ("vocab_size",),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "num_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_dim"),
    "positions": ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"),
}


USUAL = (SEQ2SEQ, MASKED)
"""Problems that a model is trained on rather than on the next token, where its config is made for them."""


def usual_problem(name: str) -> str:
    """Return the problem that models of a type are usually trained on.

    Encoders and decoders map texts to texts. Encoders, whose config knows that they may be used as a decoder, fill in
    masked tokens.
    """
    listed = {problem for problem in (CAUSAL, *USUAL) if name in _model_types(problem)}
    if not listed:
        return CAUSAL
    config_class = _config_class(name)
    if SEQ2SEQ in listed and (CAUSAL not in listed or getattr(config_class, "is_encoder_decoder", False)):
        return SEQ2SEQ
    if MASKED in listed and (CAUSAL not in listed or "is_decoder" in _fields(config_class)):
        return MASKED
    return CAUSAL


@functools.cache
def architecture(name: str, problem: str = CAUSAL) -> Architecture:
    """Return the architecture `name`; UnknownNameError when transformers has no such model for the problem."""
    known = _model_types(problem)
    if name not in known:
        close = nearest(name, known)
        raise UnknownNameError("model architecture", name, {*ARCHITECTURES, *([close] if close else [])})
    config_class = _config_class(name)
    check_code(name)
    defaults = _defaults(config_class, decoder=problem == CAUSAL)
    mapped: Mapping[str, str] = config_class.attribute_map
    names = {}
    for common, candidates in _CANDIDATES.items():
        own = next((mapped.get(key, key) for key in candidates if mapped.get(key, key) in defaults), None)
        if own is not None:
            names[common] = own
    complete = functools.partial(_complete, config_class, defaults, problem == CAUSAL)
    return Architecture(name, names, defaults, _shapes, complete=complete, buffer_bytes=_buffer_bytes)


def _fields(config_class: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(config_class)}


@functools.cache
def _model_types(problem: str = CAUSAL) -> list[str]:
    """Return the model types that transformers has a model for the problem for, read from its source: no import."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        raise ModelError("transformers is not installed; run `pip install transformers`")
    source = (Path(spec.origin).parent / "models" / "auto" / "modeling_auto.py").read_text()
    table = CATALOG.entry(problem).declares.listed
    listed = re.search(rf"^{table} = OrderedDict\((.*?)^\)", source, re.DOTALL | re.MULTILINE)
    assert listed, f"transformers has no {table} now"
    return re.findall(r'\("([^"]+)",', listed[1])


def check_code(name: str) -> None:
    """Raise ModelError for a model whose code fetches or compiles other code as it is built.

    Its source is read, not run.
    """
    from transformers.models.auto.configuration_auto import model_type_to_module_name

    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "models" / model_type_to_module_name(name)
    for path in sorted(folder.glob("modeling_*.py")):
        if found := _FETCHES.search(path.read_text("utf-8")):
            raise ModelError(
                f"{name} fetches or compiles code for accelerators as it is built ({found[0]} in {path.name}): "
                "no machine of a run may be made to do that; take another architecture"
            )


def _config_class(name: str) -> Any:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return CONFIG_MAPPING[name]


def _base_keys() -> set[str]:
    from transformers import PreTrainedConfig

    return {field.name for field in dataclasses.fields(PreTrainedConfig)}


def _defaults(config_class: Any, *, decoder: bool) -> dict[str, Any]:
    """Return the config's own keys and raw defaults: before the class derives anything from them."""
    base = _base_keys()
    defaults: dict[str, Any] = {}
    for field in dataclasses.fields(config_class):
        if field.name in base or not field.init:
            continue
        if field.default is not dataclasses.MISSING:
            defaults[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory()
    if "is_decoder" in defaults and decoder:  # BERT and its relatives attend to later tokens by default
        defaults["is_decoder"] = True
    return {key: 0.0 if is_dropout(key) else value for key, value in defaults.items()}


def _complete(
    config_class: Any, defaults: Mapping[str, Any], decoder: bool, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Return `config` with everything that its class derives; ModelError when the class refuses it."""
    given = {key: value for key, value in config.items() if key in defaults or key in config_class.attribute_map}
    given |= {key: config[key] for key in ("rope_theta", "rope_scaling") if key in config}
    try:
        whole = config_class(**given).to_dict()
    except Exception as error:  # config classes raise exceptions of any type
        raise ModelError(f"{config_class.model_type} refuses this config: {str(error)[:300]}") from error
    kept = {key: _plain(whole[key], _base_keys()) for key in defaults if key in whole}
    return kept | ({"is_decoder": decoder} if "is_decoder" in kept else {})


def _plain(value: Any, base: set[str]) -> Any:
    """Return `value` without the keys that the base class keeps in every config within a config."""
    if isinstance(value, dict):
        return {key: _plain(inner, base) for key, inner in value.items() if key not in base and str(key)[0] != "_"}
    return [_plain(inner, base) for inner in value] if isinstance(value, (list, tuple)) else value


def _shapes(config: Mapping[str, Any]) -> Shapes:
    yield from _sizes(json.dumps(config))[0]


def _buffer_bytes(config: Mapping[str, Any]) -> int:
    return _sizes(json.dumps(config))[1]


@functools.lru_cache(maxsize=4)
def _sizes(config: str) -> tuple[list[tuple[str, tuple[int, ...]]], int]:
    """Return the parameters' names and shapes, and the bytes of the buffers, of a config as JSON.

    Building the config takes long.
    """
    module = _empty(config)
    shapes = [(name, tuple(parameter.shape)) for name, parameter in module.named_parameters()]
    return shapes, sum(buffer.nbytes for buffer in module.buffers())


@functools.lru_cache(maxsize=4)
def linear_layers(config: str) -> list[tuple[str, int, int]]:
    """Return the name, inputs and outputs of the linear layers of a config as JSON, but for the output layer's."""
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    module: Any = _empty(config)
    found = list[tuple[str, int, int]]()
    for name, layer in module.named_modules():
        if layer is module.get_output_embeddings():
            continue
        if isinstance(layer, nn.Linear):
            found.append((name, layer.in_features, layer.out_features))
        elif isinstance(layer, Conv1D):
            found.append((name, layer.nx, layer.nf))
    return found


def _empty(config: str) -> Any:
    from barnraise.models.instantiate import build_empty

    return build_empty(json.loads(config))
