"""A trained model as a Hugging Face folder: whole, as `AutoModelForCausalLM` loads it, or its adapters alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from barnraise.core.errors import InputError, StorageError
from barnraise.models.build import build_exchanged
from barnraise.models.exchange.catalog import CATALOG, MODEL
from barnraise.models.exchange.frozen_base import quietly
from barnraise.models.exchange.record import Exchange


def whole_model(resolved: Mapping[str, Any], exchange: Exchange, vector: Tensor, parts: Path) -> nn.Module:
    """Return the model that `resolved` describes with the trained values of `vector`, adapters merged, in float32.

    The frozen parts are in the folder `parts`.
    """
    side = exchange.in_float32().module_exchange()
    return side.whole(_trained(resolved, exchange, vector, parts))


def _trained(resolved: Mapping[str, Any], exchange: Exchange, vector: Tensor, parts: Path) -> nn.Module:
    exchange = exchange.in_float32()
    module = build_exchanged(resolved, exchange, parts)
    exchange.module_exchange().enter(module, vector)
    return module


def export(
    folder: Path,
    resolved: Mapping[str, Any],
    exchange: Exchange,
    vector: Tensor,
    parts: Path,
    tokenizer_files: Mapping[str, bytes] | None = None,
) -> None:
    """Write config.json, generation_config.json, model.safetensors and the tokenizer's files to `folder`.

    `vector` [exchanged] is a version of the model that `resolved` describes; the frozen parts are in the folder
    `parts`. Adapters are merged. Other files in the folder stay, but an older model's weights are removed. Raises
    StorageError when the folder cannot be written.
    """
    module: Any = whole_model(resolved, exchange, vector, parts)

    def save(partial: Path) -> None:
        state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        module.save_pretrained(partial, state_dict=state)

    _write(folder, save, tokenizer_files or {}, last="config.json", stale="model*.safetensors*")


def export_adapter(
    folder: Path, resolved: Mapping[str, Any], exchange: Exchange, vector: Tensor, parts: Path, base: str
) -> None:
    """Write adapter_config.json and adapter_model.safetensors to `folder`, which `PeftModel.from_pretrained` loads.

    `base` is the name of the model that they belong to. Raises InputError where no adapters were trained, StorageError
    when the folder cannot be written.
    """
    if CATALOG.entry(exchange.name.kind).declares.inside:
        raise InputError(f"the run trained the model itself and no adapters; export it as {MODEL}")
    module = cast(Any, _trained(resolved, exchange, vector, parts))
    for config in module.peft_config.values():
        config.base_model_name_or_path = base

    def save(partial: Path) -> None:
        with quietly():
            module.save_pretrained(partial, save_embedding_layers=False)
        (partial / "README.md").unlink(missing_ok=True)  # a form to fill in

    _write(folder, save, {}, last="adapter_config.json", stale="adapter_model*.safetensors")


def _write(folder: Path, save: Callable[[Path], None], besides: Mapping[str, bytes], *, last: str, stale: str) -> None:
    folder = folder.absolute()
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        partial.mkdir(parents=True)
        save(partial)
        for name, content in besides.items():
            (partial / name).write_bytes(content)
        _move(partial, folder, last, stale)
    except Exception as error:  # safetensors raises its own error for a full disk
        raise StorageError(f"{folder} cannot be written ({error}); free some space or choose another folder") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _move(new: Path, folder: Path, last: str, stale: str) -> None:
    """Move the files of `new` into `folder`, the file `last` last: a folder with it is whole."""
    folder.mkdir(exist_ok=True)
    (folder / last).unlink(missing_ok=True)
    for old in folder.glob(stale):
        old.unlink()
    for path in sorted(new.iterdir(), key=lambda path: path.name == last):
        path.replace(folder / path.name)
