"""The files of an exchange's frozen base, and the type in which they are loaded; imports torch."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import safe_open

from barnraise.models.exchange.base_model import FLOAT32
from barnraise.models.weights import INDEX, ONE


def loaded_as(base: str) -> torch.dtype:
    """Return the type in which the parameters are loaded before layers are packed into the type `base`."""
    return torch.float32 if base == FLOAT32 else torch.bfloat16


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
    """Hide the warnings that peft gives to its own authors as it is imported and used."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
