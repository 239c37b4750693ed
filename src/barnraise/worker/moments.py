"""A worker's optimizer moments, kept on its disk from one process to the next.

AdamW without its moments takes steps of several times the usual length: a restarted worker would set the model back.
The residual of error feedback is not kept: it is submitted when a worker leaves, and an old copy would count updates
again that were sent since.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from barnraise.core.text import printable
from barnraise.training.local import LocalTrainer

INTERVAL = 30.0
"""Seconds between two writes, at least."""

COST = 0.02
"""Share of the time that writing may take."""

HEADER_BYTES = 1 << 16


class Moments:
    """The file of one worker's moments in one run; `owner` identifies both (run, node, model ...).

    Files of other owners are not used. Not thread-safe: for the training thread, between two tasks. Errors are
    reported, and do not interrupt training.
    """

    def __init__(self, path: Path, owner: Mapping[str, str], say: Callable[[str], None]) -> None:
        self.path, self.owner, self.say = path, dict(owner), say
        self._due = -math.inf

    def restore(self, trainer: LocalTrainer) -> bool:
        """Load the moments into `trainer`; False when there are none, or they are damaged or another owner's."""
        if not self.path.exists():
            return False
        try:
            trouble = "" if trainer.remember(self._read(8 * trainer.flat.layout.size)) else "they do not fit"
        except (OSError, SafetensorError, ValueError, RuntimeError) as error:
            trouble = str(error)
        if trouble:
            self.say(f"optimizer moments in {self.path} are not used: {printable(trouble)}")
        return not trouble

    def keep_if_due(self, trainer: LocalTrainer) -> None:
        """Call `keep`, if the last time is long enough ago."""
        if time.monotonic() >= self._due:
            self.keep(trainer)

    def keep(self, trainer: LocalTrainer) -> None:
        """Write the moments of `trainer` atomically."""
        moments = {name: tensor.contiguous() for name, tensor in trainer.moments().items()}
        if not moments:
            return
        began = time.monotonic()
        partial = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            save_file(moments, partial, metadata=self.owner | {"digest": _digest(moments)})
            partial.replace(self.path)
            self._due = time.monotonic() + max(INTERVAL, (time.monotonic() - began) / COST)
        except (OSError, SafetensorError) as error:
            with contextlib.suppress(OSError):
                partial.unlink()
            self.say(f"optimizer moments cannot be kept in {self.path}: {printable(str(error))}")
            self._due = math.inf

    def _read(self, most: int) -> dict[str, Tensor]:
        size = self.path.stat().st_size
        if size > most + HEADER_BYTES:
            raise ValueError(f"they have {size} bytes, but this model's have {most}")
        with safe_open(self.path, framework="pt") as file:
            said = dict(file.metadata() or {})
            moments = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        digest = said.pop("digest", "")
        if said != self.owner:
            raise ValueError("they are of another run, node or model")
        if digest != _digest(moments):
            raise ValueError("they are damaged")
        return moments


def _digest(moments: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(moments.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
