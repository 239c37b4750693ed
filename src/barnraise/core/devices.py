"""Checks that this machine has a compute device before anything is moved to it."""

from __future__ import annotations

from barnraise.core.errors import InputError


def lacking(device: str) -> str:
    """Return why torch cannot use `device` (cpu, cuda, cuda:N, mps, xpu) on this machine; empty when it can.

    Imports torch for devices other than cpu. Counts GPUs without initialising CUDA, so that the process may fork.
    """
    kind, _, index = device.partition(":")
    if device == "cpu":
        return ""
    import torch

    if device == "mps":
        return "" if torch.backends.mps.is_available() else "torch finds no Apple GPU on this machine"
    known = {"cuda": torch.cuda, "xpu": torch.xpu}
    if kind not in known or not (index or "0").isdecimal():
        return "torch devices are cpu, cuda, cuda:N, mps and xpu"
    name = kind.upper()
    if kind == "cuda" and torch.version.cuda is None and torch.version.hip is None:
        return "the torch that is installed is built without CUDA (pytorch.org/get-started has the other builds)"
    found = known[kind].device_count()
    if not found:
        return f"torch finds no {name} device on this machine; `barnraise doctor` tells more"
    if int(index or 0) >= found:
        return f"this machine has {found} {name} device{'s' * (found > 1)}, and the first is {kind}:0"
    return ""


def require(device: str) -> None:
    """Raise InputError with a remedy unless this machine has `device`."""
    if why := lacking(device):
        raise InputError(f"device {device} cannot be used: {why}; use device cpu, or a machine that has one")
