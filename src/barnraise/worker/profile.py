"""The profile of this machine, before its training speed is measured."""

from __future__ import annotations

import os
import platform

import psutil

from barnraise.core.devices import require
from barnraise.core.types import NodeProfile
from barnraise.models.memory import PROCESS_BYTES, available_bytes

LEAST = 1 << 20
"""Smallest reported memory in bytes: 0 would mean that it is not known."""


def machine_profile(device: str, lent_bytes: int = 0) -> NodeProfile:
    """Return memory, cores and the device's name; rates are 0, "not measured".

    The memory is that for rows: the free memory, less what this process has yet to load, at most the lent amount,
    unless that is 0; of an accelerator its own free memory. The worker itself trains by the same number, so that it can
    do the tasks it is given.
    """
    require(device)
    name, own = device, 0
    free = max(LEAST, available_bytes() - max(0, PROCESS_BYTES - psutil.Process().memory_info().rss))
    memory = min(lent_bytes or free, free)
    if device == "cpu":
        name = f"cpu ({platform.machine()})"
    elif device == "mps":
        own = memory  # it computes in the machine's memory
    else:
        import torch

        own = max(LEAST, torch.accelerator.get_memory_info(device)[0])
        if device.startswith("cuda"):
            name = torch.cuda.get_device_name(device)
    return NodeProfile(
        memory_bytes=memory, cores=os.cpu_count() or 1, device=name[:120], accelerator_bytes=min(lent_bytes or own, own)
    )
