"""Devices that this machine lacks are named as such before anything is moved to them."""

from __future__ import annotations

import pytest
import torch

from barnraise.core.devices import lacking, require
from barnraise.core.errors import InputError
from barnraise.worker.profile import machine_profile


@pytest.mark.parametrize("device", ["cuda:999", "xpu:999", "gpu", "cuda:one", "mps:0", "cpu:1"])
def test_a_device_that_is_not_there(device: str) -> None:
    with pytest.raises(
        InputError, match=f"device {device} cannot be used: .*; use device cpu, or a machine that has one"
    ):
        machine_profile(device)


def test_devices_that_are_there() -> None:
    require("cpu")
    for number in range(torch.cuda.device_count()):
        assert lacking(f"cuda:{number}") == ""
    assert lacking(f"cuda:{torch.cuda.device_count()}")
    assert bool(lacking("cuda")) == (torch.cuda.device_count() == 0)


def test_the_memory_of_a_device() -> None:
    profile = machine_profile("cpu", 1 << 30)
    assert profile.accelerator_bytes == 0
    assert profile.room == profile.memory_bytes == 1 << 30
    for number in range(torch.cuda.device_count()):
        own = machine_profile(f"cuda:{number}").accelerator_bytes
        assert 0 < own <= torch.cuda.get_device_properties(number).total_memory
        assert machine_profile(f"cuda:{number}", 1 << 20).room == 1 << 20
