"""Copies of the parameters from their device into main memory, which are made while the trainer computes a gradient.

A gradient only reads the parameters, so a copy may take as long as the next gradient: `hold` comes before the next
change, and `wait` before the copy is read.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import Any

import numpy as np
import torch
from torch import Tensor

from barnraise.core.threads import SPAN, spans


class Transfer:
    """A copy that is done already, and the base class of others."""

    def hold(self) -> None:
        """Let all later changes of the source happen after the copy."""

    def wait(self) -> None:
        """Return when the copy is done."""


class _OnThreads(Transfer):
    """A copy that other threads make, each one a part."""

    def __init__(self, parts: list[Future[Any]]) -> None:
        self._parts = parts

    def hold(self) -> None:
        self.wait()

    def wait(self) -> None:
        for part in self._parts:
            part.result()


class OnStream(Transfer):
    """A copy, or another piece of work, on a stream of a CUDA device up to now."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._device, self._done = stream.device, stream.record_event()

    def hold(self) -> None:
        torch.cuda.current_stream(self._device).wait_event(self._done)

    def wait(self) -> None:
        self._done.synchronize()


DONE = Transfer()


def so_far(device: torch.device) -> Transfer:
    """Return the work that a CUDA device was given up to now; other devices have done theirs."""
    return OnStream(torch.cuda.current_stream(device)) if device.type == "cuda" else DONE


def host_vector(size: int, device: torch.device) -> Tensor:
    """Return an uninitialised vector in main memory, pinned where copies come from a CUDA device."""
    return torch.empty(size, dtype=torch.float32, pin_memory=device.type == "cuda")


def copy_out(source: Tensor, into: Tensor, pool: Executor | None) -> Transfer:
    """Copy `source`, float32 [d] on any device, `into` main memory: by the device, by `pool`, or at once."""
    if source.is_cuda:
        stream = _stream(source.device)
        stream.wait_stream(torch.cuda.current_stream(source.device))
        with torch.cuda.stream(stream):
            into.copy_(source, non_blocking=True)
        return OnStream(stream)
    if pool is not None and source.device.type == "cpu":
        there, here = source.numpy(), into.numpy()  # torch would start threads of its own
        return _OnThreads([pool.submit(np.copyto, here[span], there[span]) for span in spans(len(there), 16 * SPAN)])
    into.copy_(source)
    return DONE


def copy_in(source: Tensor, into: Tensor) -> Transfer:
    """Copy `source`, in main memory, `into` a tensor on any device, after its work so far and beside its next."""
    if not into.is_cuda:
        into.copy_(source)
        return DONE
    stream = _stream(into.device)
    stream.wait_stream(torch.cuda.current_stream(into.device))  # which may still use the tensor
    with torch.cuda.stream(stream):
        into.copy_(source, non_blocking=True)
    return OnStream(stream)


_streams: dict[torch.device, torch.cuda.Stream] = {}


def _stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream of copies from this device."""
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return _streams[device]
