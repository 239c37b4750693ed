"""Frozen linear layers that hold their matrix in few bits, and multiply by what those stand for; imports torch.

The matrix is widened a few rows at a time, into memory that fits a cache, so that no whole matrix is ever in float32.
On a CPU a product in bfloat16 takes several times as long as one in float32, and the widening a hundredth of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from barnraise.models.exchange.base_model import AT_ONCE, BLOCK

_VALUES_AT_ONCE = {"cpu": 1 << 20}  # AT_ONCE on others

NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""The 16 values of nf4 (Dettmers et al. 2023, "QLoRA", appendix E): quantiles of the normal distribution, with 0."""


class CompactLinear(nn.Linear):
    """A frozen linear layer whose `weight` is packed; its output has the type of its input.

    Types derive from this class. The gradient passes to the input alone.
    """

    def __init__(self, matrix: Tensor, bias: Tensor | None) -> None:
        """Pack `matrix`, [outputs, inputs]; `bias` becomes float32."""
        with torch.device("meta"):
            super().__init__(matrix.shape[1], matrix.shape[0], bias=bias is not None)
        packed, scale = _packed(self.pack, matrix)
        self.weight = nn.Parameter(packed, requires_grad=False)
        self.register_buffer("scale", scale, persistent=False)
        self.scale: Tensor | None
        if bias is not None:
            self.bias = nn.Parameter(bias.float(), requires_grad=False)

    @staticmethod
    def pack(matrix: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the packed matrix and its scales."""
        raise NotImplementedError

    def widen(self, rows: slice, out: Tensor) -> Tensor:
        """Write these rows of the matrix into the beginning of `out`, [>= rows, inputs], and return them."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        kind = x.device.type
        if torch.is_autocast_enabled(kind):
            x = x.to(torch.get_autocast_dtype(kind))
        with torch.autocast(kind, enabled=False):
            found: Tensor = _Product.apply(x, self)  # type: ignore[no-untyped-call]
            return found if self.bias is None else found + self.bias.to(found.dtype)

    def blocks(self, like: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield the matrix a few rows at a time, in the type and on the device of `like`; valid until the next."""
        most = _VALUES_AT_ONCE.get(like.device.type, AT_ONCE)
        count = min(self.out_features, max(1, most // self.in_features))
        room = torch.empty(count, self.in_features, dtype=like.dtype, device=like.device)
        for start in range(0, self.out_features, count):
            rows = slice(start, min(start + count, self.out_features))
            yield rows, self.widen(rows, room)


class BFloat16Linear(CompactLinear):
    """Two bytes a value."""

    @staticmethod
    def pack(matrix: Tensor) -> tuple[Tensor, Tensor | None]:
        return matrix.to(torch.bfloat16), None

    def widen(self, rows: slice, out: Tensor) -> Tensor:
        weight = self.weight[rows]
        return weight if weight.dtype == out.dtype else out[: len(weight)].copy_(weight)


class Int8Linear(CompactLinear):
    """A byte a value; each row's largest is 127 or -127, and its scale is float32."""

    @staticmethod
    def pack(matrix: Tensor) -> tuple[Tensor, Tensor | None]:
        values = matrix.float()
        scale = (values.abs().amax(1, keepdim=True) / 127.0).clamp_(min=torch.finfo(torch.float32).tiny)
        return (values / scale).round_().to(torch.int8), scale

    def widen(self, rows: slice, out: Tensor) -> Tensor:
        assert self.scale is not None
        return torch.mul(self.weight[rows], self.scale[rows].to(out.dtype), out=out[: rows.stop - rows.start])


class Nf4Linear(CompactLinear):
    """Half a byte a value, the nearest of 16 times the largest of its block of 64, which is float32."""

    def __init__(self, matrix: Tensor, bias: Tensor | None) -> None:
        super().__init__(matrix, bias)
        self.pairs: Tensor  # beside the weight: a copy at each use would wait for the device
        self.register_buffer("pairs", torch.from_numpy(_BYTES.view(np.int64).ravel()), persistent=False)

    @staticmethod
    def pack(matrix: Tensor) -> tuple[Tensor, Tensor | None]:
        outputs, inputs = matrix.shape
        values = nn.functional.pad(matrix.float(), (0, -inputs % BLOCK)).view(outputs, -1, BLOCK)
        scale = values.abs().amax(2, keepdim=True).clamp_(min=torch.finfo(torch.float32).tiny)
        values = values / scale
        codes = torch.zeros(values.shape, dtype=torch.uint8, device=matrix.device)
        for low, high in pairwise(NF4):  # torch.bucketize takes several times as long
            codes += (values > (low + high) / 2).view(torch.uint8)
        codes = codes.view(outputs, -1, 2)
        # As int8: transformers casts activations to the type of some layers' weights, but never to int8.
        return (codes[..., 0] * 16 + codes[..., 1]).view(torch.int8), scale.squeeze(2)

    def widen(self, rows: slice, out: Tensor) -> Tensor:
        assert self.scale is not None
        values = self._values(self.weight[rows].view(torch.uint8)).view(rows.stop - rows.start, -1, BLOCK)
        scale, out = self.scale[rows].unsqueeze(2), out[: len(values)]
        if self.in_features % BLOCK:
            return out.copy_((values * scale).flatten(1)[:, : self.in_features])
        torch.mul(values, scale, out=out.view_as(values))
        return out

    def _values(self, codes: Tensor) -> Tensor:
        """Return the two values of each byte, float32 [..., 2 * bytes]."""
        if codes.device.type != "cpu" or torch.compiler.is_compiling():
            return looked_up(codes, self.pairs)
        both = np.take(_BYTES.view(np.complex64).ravel(), codes.numpy())  # torch's own takes eight times as long
        return torch.from_numpy(both.view(np.float32))


LINEARS: dict[str, type[CompactLinear]] = {"bfloat16": BFloat16Linear, "int8": Int8Linear, "nf4": Nf4Linear}

_BYTES = np.array([(high, low) for high in NF4 for low in NF4], np.float32)


def _packed(pack: Callable[[Tensor], tuple[Tensor, Tensor | None]], matrix: Tensor) -> tuple[Tensor, Tensor | None]:
    """Pack a matrix a few rows at a time."""
    count = max(1, _VALUES_AT_ONCE["cpu"] // matrix.shape[1])
    packed, scales = zip(*map(pack, torch.split(matrix, count)), strict=True)
    return torch.cat(packed), None if scales[0] is None else torch.cat(scales)


def looked_up(codes: Tensor, pairs: Tensor) -> Tensor:
    """Return the values of bytes by operations of any device: one gathers both of a byte, as one int64."""
    return pairs[codes.int()].view(torch.float32)


class _Product(torch.autograd.Function):
    """The product of an input, [..., inputs], and the transpose of a layer's matrix."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: CompactLinear) -> Tensor:
        ctx.layer = layer
        out = x.new_empty(*x.shape[:-1], layer.out_features)
        flat, into = x.reshape(-1, layer.in_features), out.view(-1, layer.out_features)
        for rows, matrix in layer.blocks(x):
            torch.mm(flat, matrix.T, out=into[:, rows])
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        layer: CompactLinear = ctx.layer
        flat = gradient.reshape(-1, layer.out_features)
        found = flat.new_empty(len(flat), layer.in_features)
        for rows, matrix in layer.blocks(flat):
            found.addmm_(flat[:, rows], matrix, beta=float(rows.start > 0))
        return found.view(*gradient.shape[:-1], layer.in_features), None


@torch.no_grad()
def compacted(module: nn.Module, base: str) -> nn.Module:
    """Return `module`, all of it frozen, with its linear layers in the type `base`, as `BaseType` tells.

    Activations, norms and biases are float32. The output layer and embeddings are bfloat16.
    """
    from transformers.pytorch_utils import Conv1D

    output = cast(Any, module).get_output_embeddings()
    widened = set[int]()  # matrices that stay in bfloat16, with layers that widen them
    for name, layer in list(module.named_modules()):
        if isinstance(layer, nn.Embedding):
            widened.add(id(layer.weight))
            layer.weight.data = _own(layer.weight.data)
            layer.register_forward_hook(_float32)
        elif isinstance(layer, nn.Linear | Conv1D) and not isinstance(layer, CompactLinear):
            kind = BFloat16Linear if layer is output else LINEARS[base]
            matrix = layer.weight.data.T.contiguous() if isinstance(layer, Conv1D) else layer.weight.data
            compact = kind(matrix, layer.bias)
            if layer is output:  # its matrix may be an embedding's too
                compact.weight = layer.weight
                layer.weight.data = _own(layer.weight.data)
            widened.add(id(compact.weight))
            layer.weight = compact.weight  # frees the matrix
            module.set_submodule(name, compact)
    for parameter in module.parameters():
        if id(parameter) not in widened:
            parameter.data = parameter.data.float()
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.data = buffer.data.float()
    return module


def _own(matrix: Tensor) -> Tensor:
    """Return a copy in bfloat16: a tensor of a mapped file keeps the whole file's mapping."""
    return matrix.to(torch.bfloat16, copy=True)


def _float32(layer: nn.Module, given: Any, out: Tensor) -> Tensor:
    return out.float()
