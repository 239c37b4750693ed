"""From a run file's `model` section to the whole config of the model: derived, checked, plain JSON.

The result of `describe` is sent to workers and taken by `build`. For the architectures of `ARCHITECTURES` it is made
without torch or transformers; others are looked up in transformers, which takes seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barnraise.core.errors import ModelError, nearest
from barnraise.models import problems
from barnraise.models.architectures import ARCHITECTURES, Architecture, is_dropout
from barnraise.models.limits import check_data, check_sizes, check_values
from barnraise.models.problems import CAUSAL, PROBLEM

Resolved = dict[str, Any]
"""A whole config: `model_type` and the architecture's own keys."""

_MAX_CONFIG_BYTES = 1 << 20
_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
_SYNONYMS = {
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "max_position_embeddings": "positions",
    "n_positions": "positions",
}


def describe(
    section: Mapping[str, Any],
    vocab_size: int,
    context: int,
    *,
    bos_id: int | None = None,
    eos_id: int | None = None,
    pad_id: int | None = None,
) -> Resolved:
    """Return the whole config of the model in `section` for rows of `context` tokens with ids below `vocab_size`.

    `section` is `{architecture, config}` or `{path, config}` (a local Hugging Face folder, whose sizes and dropout
    hold; its `config` may set dropout). Missing keys are derived: vocabulary, positions and special tokens from the
    data, kinds of layers and inner sizes from the rest; dropout is 0, all else transformers' default. Raises ModelError
    (value, limit, remedy) for an invalid config, UnknownNameError for an unknown architecture.
    """
    tokens = dict(zip(_TOKENS, (bos_id, eos_id, pad_id), strict=True))
    if own := _own_problem(section):
        return {"model_type": own["name"], PROBLEM: own}
    path, name = section.get("path"), section.get("architecture")
    if (path is None) == (name is None):
        raise ModelError("the model section needs exactly one of 'architecture' and 'path'")
    folder = None if path is None else Path(path).expanduser()
    kind = str(name) if folder is None else read_config(folder)["model_type"]
    told = problems.named(section.get("problem") or usual_problem(kind), section.get("problem_options") or {})
    if folder is None:
        resolved = _from_scratch(kind, section.get("config") or {}, vocab_size, context, tokens, told["name"])
    else:
        resolved = _from_folder(folder, section.get("config") or {}, tokens, told["name"])
    if told["name"] != CAUSAL:
        resolved[PROBLEM] = told
    check(resolved, vocab_size=vocab_size, context=context)
    return resolved


def _own_problem(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the section says of a problem that builds its own model; nothing where transformers builds it."""
    name = section.get("problem")
    if name is None or problems.CATALOG.entry(name).declares.auto_class:
        return {}
    if given := [key for key in ("path", "architecture", "config") if section.get(key)]:
        raise ModelError(
            f"the problem '{name}' builds its own model, but the model section has {' and '.join(given)}; "
            "leave that out, and set problem_options"
        )
    return problems.named(name, section.get("problem_options") or {})


def check(resolved: Mapping[str, Any], *, vocab_size: int = 1, context: int = 1) -> None:
    """Raise ModelError unless the config's model can be built and reads rows of `context` ids below `vocab_size`.

    A worker calls this on a received config before anything is allocated.
    """
    entry = architecture_of(resolved)
    if problems.is_own(resolved):
        return
    check_values(entry, resolved)
    check_sizes(entry, resolved)
    check_data(entry, resolved, vocab_size, context)


def architecture_of(resolved: Mapping[str, Any]) -> Architecture:
    """Return the architecture of a whole config; ModelError when its problem is not known here."""
    if problems.is_own(resolved):
        from barnraise.models import own_modules

        return own_modules.architecture(resolved)
    return lookup(resolved.get("model_type"), problems.entry_of(resolved).name)


def lookup(name: object, problem: str = CAUSAL) -> Architecture:
    """Return the architecture `name`; UnknownNameError when transformers has no such model for the problem."""
    if isinstance(name, str) and name in ARCHITECTURES and problem == CAUSAL:
        return ARCHITECTURES[name]
    from barnraise.models import generic

    return generic.architecture(str(name), problem)


def usual_problem(name: str) -> str:
    """Return the name of the problem that models of a type are usually trained on."""
    if name in ARCHITECTURES:
        return CAUSAL
    from barnraise.models import generic

    return generic.usual_problem(name)


def own_keys(entry: Architecture, config: Mapping[str, Any]) -> Resolved:
    """Return `config` under the architecture's own keys; ModelError for unknown keys and for two spellings of one."""
    given: Resolved = {}
    said: dict[str, str] = {}
    for key, value in config.items():
        own = _own_key(entry, str(key))
        if own is None:
            known = sorted({*entry.defaults, *entry.names} - {"positions"})
            close = nearest(str(key), known)
            hint = f"did you mean '{close}'?" if close else f"known: {', '.join(known)}"
            raise ModelError(f"{entry.model_type} has no config key '{key}'; {hint}")
        if own in given and given[own] != value:
            raise ModelError(f"'{said[own]}' is {given[own]!r} and '{key}' is {value!r}, but both mean {own}; keep one")
        given[own], said[own] = value, str(key)
    return given


def _own_key(entry: Architecture, key: str) -> str | None:
    if key in entry.defaults:
        return key
    return entry.names.get(_SYNONYMS.get(key, key))


def _from_scratch(
    name: str,
    config: Mapping[str, Any],
    vocab_size: int,
    context: int,
    tokens: Mapping[str, int | None],
    problem: str,
) -> Resolved:
    entry = lookup(name, problem)
    given = own_keys(entry, config)
    resolved = {**entry.defaults, "vocab_size": vocab_size}
    resolved |= {key: token for key, token in tokens.items() if key in entry.defaults}
    if "positions" in entry.names:
        resolved[entry.names["positions"]] = context
    resolved = {"model_type": name, **resolved, **given}
    check_values(entry, resolved)
    _derive(entry, resolved, given)
    return resolved if entry.complete is None else {"model_type": name, **entry.complete(resolved)}


def _from_folder(folder: Path, config: Mapping[str, Any], tokens: Mapping[str, int | None], problem: str) -> Resolved:
    found = read_config(folder)
    entry = lookup(found.get("model_type"), problem)
    given = own_keys(entry, config)
    if sizes := [key for key in given if not is_dropout(key)]:
        known = ", ".join(key for key in entry.defaults if is_dropout(key))
        raise ModelError(
            f"config sets {', '.join(sizes)}, but a model with a 'path' has the config of its folder; beside a path "
            f"config may set dropout alone ({known or f'of which a {entry.model_type} has none'})"
        )
    if entry.complete is not None:
        kept = entry.complete(found)
    else:
        _modernise(found)
        own = own_keys(entry, {key: found[key] for key in found if _own_key(entry, key)})
        kept = {**entry.defaults, **entry.dropout, **own}
    for key in _TOKENS:  # the data's special tokens count; a checkpoint's may lie outside its vocabulary
        if tokens[key] is not None or _outside(kept.get(key), entry.get(kept, "vocab_size")):
            kept |= {key: tokens[key]} if key in entry.defaults else {}
    resolved = {"model_type": entry.model_type, **kept, **given}
    check_values(entry, resolved)
    _derive(entry, resolved, resolved)
    return resolved


def read_config(folder: Path) -> dict[str, Any]:
    """Read the config.json of a checkpoint folder; ModelError when it is missing or unreadable."""
    path, remedy = folder / "config.json", "give a folder that transformers' save_pretrained wrote"
    try:
        if path.stat().st_size > _MAX_CONFIG_BYTES:
            raise ModelError(f"{path} has {path.stat().st_size} bytes, but may have {_MAX_CONFIG_BYTES}; {remedy}")
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}); {remedy}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON ({error}); {remedy}") from error
    if not isinstance(found, dict) or not isinstance(found.get("model_type"), str):
        raise ModelError(f"{path} names no model_type; {remedy}")
    if "quantization_config" in found:
        raise ModelError(f"{folder} is quantized, but only full weights can be trained; give the original checkpoint")
    return found


def _modernise(found: dict[str, Any]) -> None:
    """Convert config keys from before transformers 5 to the current ones."""
    if found["model_type"] == "llama" and not found.get("rope_parameters"):
        scaling = found.get("rope_scaling") or {}
        kind = {"rope_type": scaling.get("rope_type") or scaling.get("type") or "default"}
        found["rope_parameters"] = {"rope_theta": found.get("rope_theta") or 10000.0, **scaling, **kind}


def _outside(token: object, vocab_size: object) -> bool:
    return isinstance(token, int) and isinstance(vocab_size, int) and not 0 <= token < vocab_size


def _derive(entry: Architecture, resolved: Resolved, given: Mapping[str, Any]) -> None:
    """Fill in derived keys that were not `given`."""
    hidden, layers, heads = (entry.get(resolved, name) for name in ("hidden_size", "num_layers", "num_heads"))
    if hidden is None or heads is None:
        return
    gated = resolved.get("hidden_act") == "silu"  # a gate is a third matrix: 8/3 keeps the size of 4 (Shazeer 2020)
    follows: dict[str, Any] = {
        entry.names.get("intermediate_size", ""): -(-8 * hidden // 3 // 32) * 32 if gated else 4 * hidden,
        "num_key_value_heads": heads,
        "head_dim": hidden // heads,
        "word_embed_proj_dim": hidden,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }
    if entry.model_type == "gpt_neo":
        pairs, odd = divmod(layers, 2)
        follows["attention_types"] = [[["global", "local"], pairs]] * (pairs > 0) + [[["global"], 1]] * odd
    for key, value in follows.items():
        if key in entry.defaults and given.get(key) is None:
            resolved[key] = value
