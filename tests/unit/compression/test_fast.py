"""The compiled loops where numba's cache is damaged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

USE = """
import torch
from barnraise import compression
from barnraise.compression import fast
vector = torch.randn(fast.WORTH + 77, generator=torch.Generator().manual_seed(1))
for name in ("sparse_loco", "int4"):
    codec = compression.create(name)
    codec.decode(codec.encode(vector))
print(fast.loops(fast.WORTH) is not None)
"""


def used(cache: Path) -> str:
    env = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    told = subprocess.run([sys.executable, "-c", USE], env=env, capture_output=True, text=True, check=True)
    return told.stdout.strip()


@pytest.mark.campaign
def test_a_damaged_cache_of_compiled_loops_leaves_the_work_to_numpy(tmp_path: Path) -> None:
    assert used(tmp_path) == "True"
    for index in (indices := list(tmp_path.rglob("*.nbi"))):
        index.write_bytes(index.read_bytes()[:10])
    assert indices
    assert used(tmp_path) == "False"
