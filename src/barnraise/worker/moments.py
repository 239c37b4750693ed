"""What a worker's optimizer knows, kept on its disk from one process to the next.

AdamW without its moments takes steps of several times the usual length: a worker that starts again would set the model
back. The residual of error feedback is not kept: what it holds is handed in when a worker leaves, and a copy from
before would count again what was sent since.
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
"""Seconds between two times that they are written, at least."""

COST = 0.02
"""Share of the time that writing them may take."""

HEADER_BYTES = 1 << 16


class Moments:
    """One file, for one worker of one run: `owner` says of which (run, node, model ...), and no other's is used.

    Not thread-safe: for the training thread, between two tasks. What goes wrong is said, and harms no training.
    """

    def __init__(self, path: Path, owner: Mapping[str, str], say: Callable[[str], None]) -> None:
        self.path, self.owner, self.say = path, dict(owner), say
        self._due = -math.inf

    def restore(self, trainer: LocalTrainer) -> bool:
        """Let `trainer` go on with what is kept; False when nothing is, or not its own, or not whole."""
        if not self.path.exists():
            return False
        try:
            trouble = "" if trainer.remember(self._read(8 * trainer.flat.num_parameters)) else "they do not fit"
        except (OSError, SafetensorError, ValueError, RuntimeError) as error:
            trouble = str(error)
        if trouble:
            self.say(f"optimizer moments in {self.path} are not used: {printable(trouble)}")
        return not trouble

    def keep_if_due(self, trainer: LocalTrainer) -> None:
        """`keep`, if the last time is long enough ago."""
        if time.monotonic() >= self._due:
            self.keep(trainer)

    def keep(self, trainer: LocalTrainer) -> None:
        """Write what `trainer` knows, whole or not at all."""
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
