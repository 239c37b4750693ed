"""What a process asks of the kernel about itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIMITED = """
import resource
from barnraise.core.processes import limited_memory

before = resource.getrlimit(resource.RLIMIT_DATA)
with limited_memory(64 << 20):
    kept = bytearray(32 << 20)
    try:
        bytearray(64 << 20)
    except MemoryError:
        print("refused")
bytearray(64 << 20)
print(resource.getrlimit(resource.RLIMIT_DATA) == before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is Linux's")
def test_a_process_can_be_kept_from_taking_more_memory() -> None:
    process = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["refused", "True"]
