"""All parameters of a module as ONE contiguous float32 vector, of which the module's parameters are views.

Copying a version in or out, the norm of a gradient, an optimizer's step: each is one operation on one tensor. Forward
and backward passes are unchanged.

Weight decay: an optimizer over `as_parameter()` decays every parameter alike, as `AdamW(module.parameters())` does. To
exclude biases and norms, scale their part of the gradient yourself: one tensor has one decay.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from barnraise.core.errors import CorruptionError, ModelError, StorageError
from barnraise.models.layout import FlatLayout


class FlatParameters:
    """Moves the parameters of `module` (tied ones once; buffers stay) into `vector`, float32 [d].

    Afterwards `module.to(device)` or replacing a parameter would break the views: move the module first. `gradient` is
    their gradient, [d], also one vector: zero it with `gradient.zero_()`, not with `zero_grad()`, which would drop the
    views.
    """

    def __init__(self, module: nn.Module) -> None:
        """Raise ModelError when a parameter is not float32 or shares memory with another in part."""
        named = list(module.named_parameters())
        for name, parameter in named:
            if parameter.dtype != torch.float32:
                raise ModelError(f"parameter {name} is {parameter.dtype}, but training needs float32; convert it")
        _check_separate(named)
        self.module = module
        self.layout = FlatLayout.of((name, tuple(parameter.shape)) for name, parameter in named)
        device = named[0][1].device
        self.vector = torch.empty(self.layout.total, dtype=torch.float32, device=device)
        self.gradient = torch.zeros_like(self.vector)
        with torch.no_grad():
            for (_, parameter), (entry, start, stop) in zip(named, self.layout.offsets(), strict=True):
                view = self.vector[start:stop].view(entry.shape)
                view.copy_(parameter)
                parameter.data = view
                parameter.grad = self.gradient[start:stop].view(entry.shape)

    @property
    def num_parameters(self) -> int:
        """Return d, the number of parameters."""
        return self.vector.numel()

    def as_parameter(self) -> nn.Parameter:
        """Return `vector` and `gradient` as one parameter, for an optimizer over all of them; memory is shared."""
        parameter = nn.Parameter(self.vector)
        parameter.grad = self.gradient
        return parameter


def named_views(vector: Tensor, layout: FlatLayout) -> dict[str, Tensor]:
    """Return the tensors of `layout` by name, as views of `vector` [d]."""
    assert vector.shape == (layout.total,), (vector.shape, layout.total)
    return {entry.name: vector[start:stop].view(entry.shape) for entry, start, stop in layout.offsets()}


def save(vector: Tensor, layout: FlatLayout, path: Path) -> None:
    """Write `vector` as named tensors to a safetensors file, atomically and durably; StorageError otherwise."""
    from safetensors.torch import save_file

    partial = path.with_name(path.name + ".partial")
    try:
        save_file(named_views(vector.detach().cpu(), layout), partial, metadata={"format": "pt"})
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except Exception as error:  # safetensors raises its own error for a full disk
        partial.unlink(missing_ok=True)
        raise StorageError(f"{path} cannot be written ({error}); free some space or choose another folder") from error


def load(path: Path, layout: FlatLayout) -> Tensor:
    """Load the vector [d] of a safetensors file; CorruptionError unless it holds exactly the tensors of `layout`."""
    from safetensors import SafetensorError, safe_open

    vector = torch.empty(layout.total, dtype=torch.float32)
    try:
        with safe_open(path, framework="pt") as file:
            found = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no mapping)
            wanted = {entry.name: entry.shape for entry in layout.entries}
            if found != wanted:
                odd = min(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
                raise CorruptionError(f"{path}: {odd} is {found.get(odd)}, but the model has {wanted.get(odd)}")
            for entry, start, stop in layout.offsets():
                tensor = file.get_tensor(entry.name)
                if tensor.dtype != torch.float32:
                    raise CorruptionError(f"{path}: {entry.name} is {tensor.dtype}, but parameters are float32")
                vector[start:stop] = tensor.flatten()
    except SafetensorError as error:
        raise CorruptionError(f"{path} is not a whole safetensors file ({error})") from error
    except OSError as error:
        raise StorageError(f"{path} cannot be read ({error.strerror or error})") from error
    return vector


def _check_separate(named: list[tuple[str, nn.Parameter]]) -> None:
    """Check that no two parameters share memory: tied ones are listed once, but two objects over it would separate."""
    places = sorted((p.data_ptr(), p.data_ptr() + p.nbytes, name) for name, p in named if p.nbytes)
    for (_, end, name), (start, _, other) in pairwise(places):
        if start < end:
            raise ModelError(f"parameters {name} and {other} share memory without being tied; tie or clone them")
