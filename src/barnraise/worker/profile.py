"""What this machine is, before its training speed is measured."""

from __future__ import annotations

import os
import platform

import psutil

from barnraise.core.types import NodeProfile


def machine_profile(device: str, lent_bytes: int = 0) -> NodeProfile:
    """Memory (what is lent of it, unless that is 0), cores and the device's name; rates are 0, "not measured"."""
    name = device
    if device.startswith("cuda"):
        import torch

        name = torch.cuda.get_device_name(device)
    elif device == "cpu":
        name = f"cpu ({platform.machine()})"
    total = psutil.virtual_memory().total
    return NodeProfile(memory_bytes=min(lent_bytes or total, total), cores=os.cpu_count() or 1, device=name[:120])
