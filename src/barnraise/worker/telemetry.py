"""The load of the worker's machine, about once a minute: psutil, and torch where there is an accelerator."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

import psutil

from barnraise.core.types import Load
from barnraise.worker.events import Event, Measured
from barnraise.worker.task_executor import TaskExecutor

FIRST, INTERVAL = 10.0, 60.0
"""Seconds until the first measurement, and between two."""


async def watch(
    device: str, tell: Callable[[Event], None], executor: Callable[[], TaskExecutor | None] = lambda: None
) -> None:
    """Report the load, and the cost of protections once there is an executor, for as long as the worker lives."""
    process = psutil.Process()
    psutil.cpu_percent()  # measures from here on
    wait = FIRST
    while True:
        await asyncio.sleep(wait)
        wait = INTERVAL
        with contextlib.suppress(psutil.Error, OSError):
            made = executor()
            tell(Measured(load_of(process, device), made.overhead if made is not None else 0.0))


def load_of(process: psutil.Process, device: str) -> Load:
    """Return the load of the machine since the last call, and the share of `process`."""
    cores = os.cpu_count() or 1
    gpu, gpu_bytes = _accelerator(device)
    average = psutil.getloadavg()[0] / cores
    cpu = min(1.0, max(0.0, psutil.cpu_percent() / 100))
    return Load(cpu, gpu, process.memory_info().rss, gpu_bytes, max(0.0, average))


def _accelerator(device: str) -> tuple[float | None, int]:
    """Return the share of time in which it was busy, if known, and the bytes of its memory that the worker holds."""
    torch: Any = sys.modules.get("torch")
    if not device.startswith("cuda") or torch is None:
        return None, 0
    busy = None
    with contextlib.suppress(ImportError, RuntimeError, ValueError, OSError):  # no driver library, no permission
        busy = min(1.0, max(0.0, torch.cuda.utilization(torch.device(device)) / 100))
    return busy, int(torch.cuda.memory_reserved(device))
