"""What this machine is, before its training speed is measured."""

from __future__ import annotations

import os
import platform

import psutil

from barnraise.core.types import NodeProfile


def machine_profile(device: str) -> NodeProfile:
    """Memory, cores and the device's name; rates are 0, "not measured"."""
    name = device
    if device.startswith("cuda"):
        import torch

        name = torch.cuda.get_device_name(device)
    elif device == "cpu":
        name = f"cpu ({platform.machine()})"
    return NodeProfile(memory_bytes=psutil.virtual_memory().total, cores=os.cpu_count() or 1, device=name[:120])
