"""A trained model as a Hugging Face folder, which `AutoModelForCausalLM.from_pretrained` loads."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from barnraise.core.errors import StorageError
from barnraise.models.build import build
from barnraise.models.exchange.record import Exchange


def export(
    folder: Path,
    resolved: Mapping[str, Any],
    exchange: Exchange,
    vector: Tensor,
    tokenizer_files: Mapping[str, bytes] | None = None,
) -> None:
    """Write config.json, generation_config.json, model.safetensors and the tokenizer's files to `folder`.

    `vector` [exchanged] is a version of the model that `resolved` describes. Other files in the folder stay, but an
    older model's weights are removed. Raises StorageError when the folder cannot be written.
    """
    module = build(resolved)
    exchange.module_exchange().enter(module, vector)
    folder = folder.absolute()
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        partial.mkdir(parents=True)
        state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        cast(Any, module).save_pretrained(partial, state_dict=state)
        for name, content in (tokenizer_files or {}).items():
            (partial / name).write_bytes(content)
        _move(partial, folder)
    except Exception as error:  # safetensors raises its own error for a full disk
        raise StorageError(f"{folder} cannot be written ({error}); free some space or choose another folder") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _move(new: Path, folder: Path) -> None:
    """Move the files of `new` into `folder`, config.json last: a folder with it is whole."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").unlink(missing_ok=True)
    for old in folder.glob("model*.safetensors*"):
        old.unlink()
    for path in sorted(new.iterdir(), key=lambda path: path.name == "config.json"):
        path.replace(folder / path.name)
