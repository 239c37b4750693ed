"""AdamW whose moments take one byte a value each (after Dettmers et al. 2022, "8-bit Optimizers").

The codes are barnraise's own. The flat vector needs no per-tensor kernels; all operations round alike on every machine,
so that moments can be saved, compared and repeated; and nothing is installed. (bitsandbytes keeps tables of codes in
CUDA kernels; torchao's states are subclasses of tensors, one for each parameter.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from barnraise.training.catalog import AT_ONCE

from .adamw import AdamW, Ranges
from .base import shortened, within

BLOCK = 256
"""Values that share a scale, their largest magnitude."""

SPAN = {"cpu": 1 << 20}
"""Values that are decoded at a time, a multiple of BLOCK, by the kind of device; AT_ONCE on others.

Another number may change last bits: the fused kernel rounds the last few values of each range otherwise.
"""

_MULTIPLIER, _STRIDE = -1640531535, 1013904223  # 2^32 over the golden ratio, as int32; an odd number


class Piece(NamedTuple):
    """A part of the vector with its codes, scales and scratch, and AdamW's step over it."""

    place: slice
    codes: tuple[Tensor, Tensor]
    scales: tuple[Tensor, Tensor]
    values: tuple[Tensor, Tensor]
    step: Ranges


class AdamW8Bit(AdamW):
    """AdamW's step on moments that are decoded before it and encoded after it, a piece of the vector at a time.

    A first moment m of a block with the largest magnitude s is encoded as 127 sqrt(|m| / s) with its sign, a second one
    v as 255 (v / s)^(1/4), at least 1. So v may span nine decades, and is never rounded to 0, by which a step would be
    divided. Codes are rounded up or down at random, by a number that follows from place and step, so that a moment that
    changes by less than a code's width changes on average.
    """

    moment_names: tuple[str, ...] = ("exp_avg", "exp_avg_sq", "exp_avg_scale", "exp_avg_sq_scale")

    def zeros(self) -> dict[str, Tensor]:
        blocks = -(-len(self.vector) // BLOCK)
        codes = {
            "exp_avg": self.vector.new_zeros(blocks * BLOCK, dtype=torch.int8),
            "exp_avg_sq": self.vector.new_zeros(blocks * BLOCK, dtype=torch.uint8),
        }
        return codes | {f"{name}_scale": self.vector.new_zeros(blocks) for name in codes}

    def prepare(self) -> None:
        size = min(SPAN.get(self.vector.device.type, AT_ONCE), self.moments["exp_avg"].numel())
        scratch = self.vector.new_zeros(size), self.vector.new_zeros(size)
        places = torch.arange(size, dtype=torch.int32, device=self.vector.device)
        self._dither = places.mul_(_MULTIPLIER).bitwise_left_shift_(8)
        self._half = torch.tensor(0.5)
        self._pieces = [self._piece(start, scratch) for start in range(0, len(self.vector), size)]

    def apply(self, rate: float) -> Iterator[slice]:
        for piece in self._pieces:
            yield piece.place
            self._decode(piece)
            piece.step.step(self.steps, rate)
            self._encode(piece)

    def follow(self, direction: Tensor, share: float) -> None:
        if not self.moments:
            return
        sound = torch.linalg.vector_norm(direction).isfinite()
        for piece in self._pieces:  # each shortened by itself
            self._decode(piece)
            (own, second), wanted = self._inside(piece), direction[piece.place]
            root = (second / (1.0 - self.betas[1] ** self.steps)).sqrt_()
            wanted.mul_(root).mul_(1.0 - self.betas[0] ** self.steps)
            wanted = shortened(wanted, torch.linalg.vector_norm(own))
            own.lerp_(torch.where(sound, wanted, own), share)
            self._encode(piece)

    def expect(self, direction: Tensor | None, second: Tensor | None, steps: float) -> None:
        self._begin(self.zeros())
        self.steps = steps
        beta1, beta2 = self.betas
        for piece in self._pieces:
            first, squares = self._inside(piece)
            for values in piece.values:
                values.zero_()
            if second is not None:
                squares.copy_(second[piece.place] * (1.0 - beta2**steps))
            if direction is not None and second is not None:
                root = second[piece.place].sqrt()
                wanted = shortened(direction[piece.place] * root, self.noise * torch.linalg.vector_norm(root))
                first.copy_(wanted.mul_(1.0 - beta1**steps))
            self._encode(piece)

    def second_moments(self) -> Tensor | None:
        if not self.moments:
            return None
        found = torch.empty_like(self.vector)
        for piece in self._pieces:
            self._decode(piece)
            found[piece.place] = self._inside(piece)[1]
        return found.div_(1.0 - self.betas[1] ** self.steps)

    def _piece(self, start: int, scratch: tuple[Tensor, Tensor]) -> Piece:
        place = slice(start, min(start + len(scratch[0]), len(self.vector)))
        padded = slice(start, start + -(-(place.stop - start) // BLOCK) * BLOCK)
        blocks, size = slice(start // BLOCK, padded.stop // BLOCK), padded.stop - start
        first, second = scratch[0][:size], scratch[1][:size]
        vectors = self.vector[place], self.gradient[place], first, second
        return Piece(
            place,
            (self.moments["exp_avg"][padded], self.moments["exp_avg_sq"][padded]),
            (self.moments["exp_avg_scale"][blocks], self.moments["exp_avg_sq_scale"][blocks]),
            (first, second),
            Ranges(list(within(self.ranges, place)), self.betas, self.weight_decay).over(*vectors),
        )

    @staticmethod
    def _inside(piece: Piece) -> tuple[Tensor, Tensor]:
        """Return the decoded moments without what fills up the last block."""
        size = piece.place.stop - piece.place.start
        return piece.values[0][:size], piece.values[1][:size]

    @staticmethod
    def _decode(piece: Piece) -> None:
        (first, second), (codes, squares) = piece.values, piece.codes
        torch.mul(codes, 1.0 / 127.0, out=first)
        first.mul_(first.abs())
        torch.mul(squares, 1.0 / 255.0, out=second).square_().square_()
        for values, scale in zip(piece.values, piece.scales, strict=True):
            values.view(-1, BLOCK).mul_(scale.unsqueeze(1))

    def _encode(self, piece: Piece) -> None:
        """Encode the moments; the conversion to whole numbers rounds towards 0."""
        (first, second), dither = piece.values, self._dither_of(piece)
        magnitudes = first.abs(), second  # squares have no sign
        for values, scale in zip(magnitudes, piece.scales, strict=True):
            blocks = values.view(-1, BLOCK)
            torch.amax(blocks, 1, out=scale)
            blocks.div_(scale.clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(1))
        piece.codes[0].copy_(magnitudes[0].sqrt_().mul_(127.0).add_(dither).copysign_(first))
        piece.codes[1].copy_(second.sqrt_().sqrt_().mul_(255.0).add_(dither).clamp_(min=1.0))

    def _dither_of(self, piece: Piece) -> Tensor:
        """Return random numbers from 0 to below 1, in steps of 2^-16: the bits 8 to 23 of a hash of step and place.

        They are the upper half of the hash times 2^8. Its uppermost bit is inverted, so that 0 is the least int16.
        """
        shift = ((int(self.steps) * _STRIDE + piece.place.start * _MULTIPLIER) << 8) % (1 << 32) - (1 << 31)
        hashes = self._dither[: len(piece.values[0])] + shift
        return torch.add(self._half, hashes.view(torch.int16)[1::2], alpha=2.0**-16)
