"""A trained model as a Hugging Face folder: whole, as `AutoModelForCausalLM` loads it, or its adapters alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from barnraise.core.errors import BarnraiseError, StorageError
from barnraise.models.build import build_exchanged, without_bars
from barnraise.models.exchange.record import Exchange


def whole_model(resolved: Mapping[str, Any], exchange: Exchange, vector: Tensor, parts: Path) -> nn.Module:
    """Return the model that `resolved` describes with the trained values of `vector`, adapters merged, in float32.

    The frozen parts are in the folder `parts`.
    """
    return merged(trained_model(resolved, exchange, vector, parts), exchange)


def trained_model(resolved: Mapping[str, Any], exchange: Exchange, vector: Tensor, parts: Path) -> nn.Module:
    """Return the model that `resolved` describes with the trained values of `vector`, adapters beside it, in float32.

    The frozen parts are in the folder `parts`.
    """
    exchange = exchange.in_float32()
    module = build_exchanged(resolved, exchange, parts)
    exchange.module_exchange().enter(module, vector)
    return module


def merged(module: nn.Module, exchange: Exchange) -> nn.Module:
    """Return the model itself, with the adapters of a trained model merged into it."""
    return exchange.in_float32().module_exchange().whole(module)


def save(folder: Path, module: nn.Module, files: Mapping[str, bytes]) -> None:
    """Write config.json, generation_config.json, model.safetensors and `files` (the tokenizer's) to `folder`."""
    with without_bars():
        cast(Any, module).save_pretrained(folder)
    _put(folder, files)


def save_adapter(folder: Path, module: nn.Module, base: str, files: Mapping[str, bytes]) -> None:
    """Write adapter_config.json, adapter_model.safetensors and `files` to `folder`, as PeftModel loads them.

    `base` is the name of the model that they belong to.
    """
    model = cast(Any, module)
    for config in model.peft_config.values():
        config.base_model_name_or_path = base
    with without_bars():
        model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)  # a form to fill in
    _put(folder, files)


@contextmanager
def filled(folder: Path, *, last: str, stale: Sequence[str]) -> Iterator[Path]:
    """Yield an empty folder, whose files replace those of `folder` afterwards, the file `last` last.

    A folder with `last` is whole. Older files that match `stale` are removed, others stay. After an exception nothing
    is changed. Raises StorageError where something cannot be written.
    """
    folder = folder.absolute()
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        partial.mkdir(parents=True)
        yield partial
        _move(partial, folder, last, stale)
    except BarnraiseError:
        raise
    except Exception as error:  # safetensors raises its own error for a full disk
        raise StorageError(f"{folder} cannot be written ({error}); free some space or choose another folder") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _put(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _move(new: Path, folder: Path, last: str, stale: Sequence[str]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / last).unlink(missing_ok=True)
    for pattern in stale:
        for old in folder.glob(pattern):
            old.unlink()
    for path in sorted(new.iterdir(), key=lambda path: path.name == last):
        path.replace(folder / path.name)
