"""The means of a device: its type of numbers, compiled kernels, and recomputed activations."""

from __future__ import annotations

import importlib.util
import os
import shutil

import torch
from torch import nn

from barnraise.core.errors import ModelError
from barnraise.training.catalog import AUTOMATIC, FULL_PRECISION

HALF = "bfloat16"

EXCHANGED_VECTORS = 7
"""Vectors of an exchange that are on a device: residual, three ends of tasks, a version, a difference, a movement."""

_SHARE = 0.25
"""Share of the free memory that they may take: moments and activations need more, and come later."""

COMPILERS = "g++", "clang++", "c++"


def usable_precision(wanted: str, device: torch.device) -> str:
    """Return the precision to compute in; ModelError when the device has none of the wanted type.

    `auto` is bfloat16 where the device multiplies it natively, else float32. On CPUs it is float32, in which all
    machines agree but for rounding.
    """
    if device.type == "cpu" or wanted == FULL_PRECISION:
        return FULL_PRECISION if wanted == AUTOMATIC else wanted
    good = has_bfloat16(device)
    if wanted == AUTOMATIC:
        return HALF if good else FULL_PRECISION
    if not good:
        raise ModelError(
            f"the device '{device}' has no {wanted}, but training.precision is {wanted}; join with --precision "
            f"{FULL_PRECISION}, or take precision: {AUTOMATIC}"
        )
    return wanted


def has_bfloat16(device: torch.device) -> bool:
    """Return whether an accelerator multiplies bfloat16 natively."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "xpu"


def use_fast_products(device: torch.device) -> None:
    """Let float32 matrices be multiplied in TF32, where the device has it; CPUs compute as before."""
    if device.type != "cpu":
        torch.set_float32_matmul_precision("high")


def has_room(device: torch.device, size: int) -> bool:
    """Return whether a device has much memory beside the vectors of an exchange of `size` float32 values."""
    if device.type != "cuda":
        return False
    return EXCHANGED_VECTORS * 4 * size <= _SHARE * torch.cuda.mem_get_info(device)[0]


def why_not_compiled(device: torch.device) -> str:
    """Return why a model cannot be compiled for the device; empty when it can."""
    if device.type == "cpu":
        names = [os.environ["CXX"]] if os.environ.get("CXX") else list(COMPILERS)
        if not any(map(shutil.which, names)):
            return f"there is no C++ compiler ({', '.join(names)})"
        return ""
    if device.type == "mps":
        return "torch does not compile for mps reliably"
    return "" if importlib.util.find_spec("triton") else "triton is not installed (pip install triton)"


def compile_layers(module: nn.Module) -> list[nn.Module]:
    """Have the layers that repeat compiled at their first use, or the module where none do, and return them.

    Layers of one shape are compiled once, which takes a fraction of a whole model's time.
    """
    found = _repeated(module) or [module]
    for layer in found:
        layer.compile()
    return found


def _repeated(module: nn.Module) -> list[nn.Module]:
    """Return the members of the outermost lists of several modules of one type."""
    found = list[nn.Module]()
    for child in module.children():
        if isinstance(child, nn.ModuleList) and len(child) > 1 and len(set(map(type, child))) == 1:
            found += child
        else:
            found += _repeated(child)
    return found


def recompute_activations(module: nn.Module) -> None:
    """Keep the inputs of layers alone for the backward pass; ModelError when the model's class cannot."""
    enable = getattr(module, "gradient_checkpointing_enable", None)
    if enable is None or not getattr(module, "supports_gradient_checkpointing", True):
        raise ModelError(
            f"{type(module).__name__} cannot recompute activations; leave training.checkpoint_activations out"
        )
    enable(gradient_checkpointing_kwargs={"use_reentrant": False})
