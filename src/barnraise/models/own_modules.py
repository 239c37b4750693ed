"""Modules that a problem builds itself: their parameters, buffers and activations, measured on an empty one."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from barnraise.core.errors import BarnraiseError, ModelError
from barnraise.models.architectures import Architecture, Shapes
from barnraise.models.problems import PROBLEM, made


def architecture(config: Mapping[str, Any]) -> Architecture:
    """Return the description of the module that the config's problem builds."""
    return Architecture(
        config[PROBLEM]["name"], {}, {}, _shapes, buffer_bytes=_buffer_bytes, activation_bytes=_activation_bytes
    )


def build(config: Mapping[str, Any]) -> Any:
    """Build the module of the config's problem in float32; ModelError when that fails, or it cannot be trained here."""
    import torch
    from torch import nn

    problem, name = made(config), config[PROBLEM]["name"]
    try:
        module = problem.build()
    except BarnraiseError:
        raise
    except Exception as error:  # a user's class may raise any exception
        raise ModelError(f"the problem '{name}' cannot build its module: {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        raise ModelError(f"the problem '{name}' builds {type(module).__name__}, but must build a torch.nn.Module")
    if not any(True for _ in module.parameters()):
        raise ModelError(f"the module of the problem '{name}' has no parameters; give it some")
    odd = [key for key, value in module.named_parameters() if value.dtype != torch.float32]
    if odd:
        raise ModelError(f"the module of the problem '{name}' has {odd[0]} in another type than float32; convert it")
    for key, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.track_running_stats:
            raise ModelError(
                f"the module of the problem '{name}' has running statistics in {key}, which workers do not exchange; "
                "take GroupNorm or LayerNorm, or track_running_stats=False"
            )
    return module.train().requires_grad_(True)


def _shapes(config: Mapping[str, Any]) -> Shapes:
    yield from _sizes(json.dumps(config[PROBLEM]))[0]


def _buffer_bytes(config: Mapping[str, Any]) -> int:
    return _sizes(json.dumps(config[PROBLEM]))[1]


def _activation_bytes(config: Mapping[str, Any]) -> int:
    return _kept(json.dumps(config[PROBLEM]))


@functools.lru_cache(maxsize=4)
def _sizes(told: str) -> tuple[list[tuple[str, tuple[int, ...]]], int]:
    """Return the parameters' names and shapes, and the bytes of the buffers."""
    import torch

    with torch.device("meta"):
        module = build({PROBLEM: json.loads(told)})
    shapes = [(name, tuple(parameter.shape)) for name, parameter in module.named_parameters()]
    return shapes, sum(buffer.nbytes for buffer in module.buffers())


@functools.lru_cache(maxsize=4)
def _kept(told: str) -> int:
    """Return the bytes that the loss of one row keeps for its gradient, 0 where the rows are text."""
    import torch

    config = {PROBLEM: json.loads(told)}
    with torch.random.fork_rng(devices=[]):
        found: int = made(config).activation_bytes(build(config))
    return found
