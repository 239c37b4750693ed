"""A worker whose machine has no memory left says so, whatever the library says that finds out."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnraise.worker.shortage import shortage

FAILS = {
    "a thread": "threading.stack_size(1 << 30); threading.Thread(target=print).start()",
    "bytes": "bytearray(1 << 40)",
    "a tensor": "torch.empty(1 << 40, dtype=torch.uint8)",
    "a mapping": "mmap.mmap(-1, 1 << 40)",
}

PROGRAM = """
import mmap, resource, sys, threading
{imports}
from barnraise.worker.shortage import shortage
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)
try:
    {work}
except BaseException as error:
    print(type(error).__name__, "|", shortage(error))
"""


@pytest.mark.parametrize("what", FAILS)
def test_real_errors_are_told_apart(what: str) -> None:
    work = FAILS[what]
    program = PROGRAM.format(work=work, imports="import torch" if "torch" in work else "")
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "| this machine has no memory left for the run" in told.stdout, told
    assert "--threads" in told.stdout


def test_other_errors_are_not() -> None:
    for error in (RuntimeError("shape mismatch"), ValueError("memory"), FileNotFoundError(2, "x"), KeyError("a")):
        assert not shortage(error)
