"""Models built from resolved configs, or loaded from local checkpoint folders.

Imports torch and transformers. Nothing is downloaded, no code that comes with a checkpoint is run, nothing is
unpickled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from barnraise.core.errors import ModelError
from barnraise.models.architectures import ARCHITECTURES
from barnraise.models.chance import one_at_a_time
from barnraise.models.config import check
from barnraise.models.exchange.frozen_base import folder_of, quietly
from barnraise.models.exchange.layout import Layout
from barnraise.models.exchange.module import trained
from barnraise.models.exchange.record import Exchange
from barnraise.models.instantiate import auto_class, first_line, hugging_face_config, instantiate, trainable
from barnraise.models.problems import entry_of, is_own
from barnraise.models.weights import require_safe


def create(section: Mapping[str, Any], resolved: Mapping[str, Any], seed: int = 0) -> nn.Module:
    """Create the model of a run file's `model` section: loaded when it has a `path`, else built from scratch."""
    path = section.get("path")
    return build(resolved, seed) if path is None else load(Path(path).expanduser(), resolved)


def build(resolved: Mapping[str, Any], seed: int = 0) -> nn.Module:
    """Build a new model on the CPU in float32 and training mode; config and seed determine the parameters.

    `resolved` is from `describe` and is checked again, since it may have come over the network. The global random state
    is restored. Raises ModelError when the config cannot work.
    """
    check(resolved)
    with one_at_a_time(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        module = instantiate(resolved)
    if resolved["model_type"] not in ARCHITECTURES and not is_own(resolved):
        _try(module, resolved)
    return module


def build_exchanged(resolved: Mapping[str, Any], exchange: Exchange, folder: Path) -> nn.Module:
    """Build the model and prepare it for the exchange, whose frozen parts are files of a checkpoint in `folder`.

    Raises ModelError when it cannot be built, or a part is missing.
    """
    if not exchange.name.frozen:
        return prepared(build(resolved), exchange)
    with folder_of(exchange.parts(folder)) as base:
        return prepared(load(base, resolved, exchange.module_exchange().dtype), exchange)


def prepared(module: nn.Module, exchange: Exchange) -> nn.Module:
    """Return `module` prepared for the exchange; ModelError unless it trains exactly the leaves of the layout."""
    with one_at_a_time():
        module = exchange.module_exchange().prepare(module, exchange.layout)
    found = Layout.of((name, tuple(parameter.shape)) for name, parameter in trained(module))
    if found != exchange.layout:
        odd = sorted({leaf.name for leaf in found.leaves} ^ {leaf.name for leaf in exchange.layout.leaves})
        raise ModelError(
            f"the model has other trained parameters than an exchange of the kind '{exchange.name.kind}' lists "
            f"({', '.join(odd[:3]) or 'in other shapes or another order'}); use one version of transformers everywhere"
        )
    return module


def load(folder: Path, resolved: Mapping[str, Any], dtype: torch.dtype = torch.float32) -> nn.Module:
    """Load a Hugging Face folder in training mode; ModelError when it cannot be loaded safely."""
    check(resolved)
    require_safe(folder)
    try:
        with one_at_a_time(), without_bars():
            module, report = auto_class(resolved).from_pretrained(
                str(folder),
                config=hugging_face_config(resolved),
                dtype=dtype,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
    except Exception as error:  # a foreign folder may raise any exception
        raise ModelError(f"{folder} cannot be loaded: {first_line(error)}") from error
    problem = entry_of(resolved).declares.auto_class.removeprefix("AutoModelFor")
    lacking = sorted(report["missing_keys"]) or sorted(str(key) for key in report["mismatched_keys"])
    if lacking:
        raise ModelError(
            f"{folder} lacks {len(lacking)} parameters of a {resolved['model_type']} ({', '.join(lacking[:3])}); "
            f"give a checkpoint of a {problem}"
        )
    return trainable(module)


def _try(module: Any, resolved: Mapping[str, Any]) -> None:
    """Run one forward pass: the sizes of an unknown architecture may be incompatible."""
    try:
        with torch.no_grad():
            ids = torch.zeros(1, 2, dtype=torch.long)
            decoder = {"decoder_input_ids": ids} if module.config.is_encoder_decoder else {}
            module(input_ids=ids, **decoder)
    except Exception as error:  # model classes raise exceptions of any type
        raise ModelError(
            f"{resolved['model_type']} of these sizes cannot read text: {first_line(error)}; set its other sizes too"
        ) from error


@contextmanager
def without_bars() -> Iterator[None]:
    """Hide transformers' progress bars, which would break a live view, and warnings of the packages that it imports."""
    from transformers.utils import logging

    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with quietly():
            yield
    finally:
        if enabled:
            logging.enable_progress_bar()
