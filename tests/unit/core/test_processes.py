"""The questions of a process to the kernel about itself."""

from __future__ import annotations

import os
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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the affinity is Linux's")
def test_cores_are_those_that_the_process_may_use() -> None:
    code = "import os; from barnraise.core.processes import usable_cores; os.sched_setaffinity(0, [min("
    code += "os.sched_getaffinity(0))]); print(usable_cores())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"


OFFLINE = """
from barnraise.worker.imports import import_all

import_all()
from huggingface_hub.constants import HF_HUB_OFFLINE
from transformers.integrations import hub_kernels

print(HF_HUB_OFFLINE, hub_kernels._kernels_enabled)
"""


@pytest.mark.campaign
def test_the_libraries_of_a_worker_fetch_nothing() -> None:
    environment = {name: value for name, value in os.environ.items() if "OFFLINE" not in name}
    process = subprocess.run(
        [sys.executable, "-c", OFFLINE], capture_output=True, text=True, check=True, env=environment
    )
    assert process.stdout.split() == ["True", "False"]
