"""The frozen base of an exchange in a module: its type there, and its files; imports torch."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from safetensors import safe_open
from torch import nn

from barnraise.core.errors import ModelError
from barnraise.models.exchange.base_model import INT8
from barnraise.models.weights import INDEX, ONE

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, INT8: torch.bfloat16}
"""The types in which a base is loaded, by its name in `base_model.BASE_BYTES`."""


@contextmanager
def folder_of(files: Sequence[Path]) -> Iterator[Path]:
    """Yield a temporary folder in which `files` of safetensors are the weights of one checkpoint."""
    with TemporaryDirectory(prefix="barnraise-base-") as name:
        folder = Path(name)
        if len(files) == 1:
            (folder / ONE).symlink_to(files[0].resolve())
        else:
            places: dict[str, str] = {}
            for number, path in enumerate(files, 1):
                link = f"model-{number:05}-of-{len(files):05}.safetensors"
                (folder / link).symlink_to(path.resolve())
                with safe_open(path, "pt") as found:
                    places |= dict.fromkeys(found.keys(), link)
            (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
        (folder / "generation_config.json").write_text("{}")  # transformers 5 fails without
        yield folder


@contextmanager
def quietly() -> Iterator[None]:
    """Hide the warnings that peft and torchao give to their own authors as they are imported and used."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def hold(module: nn.Module, base: str) -> nn.Module:
    """Return `module` with its frozen linear layers in the type `base`; ModelError where a package is missing."""
    if base != INT8:
        return module
    try:
        from torchao.quantization import Int8WeightOnlyConfig, quantize_
    except ImportError:
        raise ModelError(
            "the run holds its base model in int8, which needs torchao; run `pip install 'barnraise[adapters-int8]'`"
        ) from None
    output = cast(Any, module).get_output_embeddings()

    def is_frozen(layer: nn.Module, name: str) -> bool:
        return isinstance(layer, nn.Linear) and layer is not output and not layer.weight.requires_grad

    quantize_(module, Int8WeightOnlyConfig(), filter_fn=is_frozen)
    return module
