"""Modules from resolved configs, unchecked and untrained, for building and describing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from barnraise.core.errors import ModelError
from barnraise.models import own_modules, problems


def instantiate(resolved: Mapping[str, Any]) -> nn.Module:
    """Build the module in float32 and training mode; ModelError when its class refuses the config."""
    if problems.is_own(resolved):
        module: nn.Module = own_modules.build(resolved)
        return module
    try:
        module = auto_class(resolved).from_config(hugging_face_config(resolved), dtype=torch.float32)
    except Exception as error:  # model classes raise exceptions of any type
        raise ModelError(f"{resolved['model_type']} cannot be built from this config: {first_line(error)}") from error
    return trainable(module)


def build_empty(resolved: Mapping[str, Any]) -> nn.Module:
    """Build the model without storage (torch's meta device): its parameters have names and shapes only."""
    with torch.device("meta"):
        return instantiate(resolved)


def hugging_face_config(resolved: Mapping[str, Any]) -> Any:
    """Return the architecture's own config object."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return CONFIG_MAPPING[resolved["model_type"]](
        **{key: value for key, value in resolved.items() if key not in ("model_type", problems.PROBLEM)}
    )


def auto_class(resolved: Mapping[str, Any]) -> Any:
    """Return transformers' class for models of the config's problem."""
    import transformers

    return getattr(transformers, problems.entry_of(resolved).declares.auto_class)


def trainable(module: nn.Module) -> nn.Module:
    """Make every parameter of `module` trainable, and return it."""
    return module.train().requires_grad_(True)


def first_line(error: Exception) -> str:
    """Return the first line of an error, shortened for a message."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300]
