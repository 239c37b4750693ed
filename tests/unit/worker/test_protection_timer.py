"""The cost of protections as a worker measures it: seconds of masks and noise beside those of its steps."""

from __future__ import annotations

import time

import pytest
import torch

from barnraise import compression
from barnraise.core.threads import Crew
from barnraise.core.types import LARGEST_OVERHEAD
from barnraise.worker.noise_stage import ClippedNoise
from barnraise.worker.protection_timer import ProtectionTimer
from barnraise.worker.update_path import UpdatePath


def timer(trained: float, protected: float, rows: float = 1.0) -> ProtectionTimer:
    found = ProtectionTimer()
    found.rows = rows
    if protected:
        with found.protecting():
            time.sleep(protected)
    if trained:
        found.trained(trained)
    return found


def test_the_overhead_is_not_known_before_a_task_nor_without_protections() -> None:
    assert timer(0.0, 0.001).overhead == 0.0
    assert timer(1.0, 0.0).overhead == 0.0


def test_the_overhead_is_the_time_with_protections_over_that_without() -> None:
    assert timer(10.0, 0.0, rows=1.5).overhead == pytest.approx(1.5)
    assert timer(0.01, 0.02).overhead >= 3.0
    assert timer(0.02, 0.01, rows=2.0).overhead >= 3.0


def test_the_overhead_stays_within_what_a_report_may_hold() -> None:
    assert timer(1e-9, 0.01).overhead == LARGEST_OVERHEAD
    assert timer(1.0, 0.0, rows=0.5).overhead == 1.0


def test_noise_on_an_update_counts_as_protection_and_its_codec_does_not() -> None:
    timed = ProtectionTimer()
    timed.trained(1.0)
    path = UpdatePath(compression.create("int8"), error_feedback=False, decay=1.0, update_clip=None)
    stage = ClippedNoise(1.0, 0.5, Crew(), timed)
    path.send(torch.ones(5000), torch.zeros(5000))
    assert timed.overhead == 0.0
    path.insert(stage)
    path.send(torch.ones(5000), torch.zeros(5000))
    assert timed.overhead > 1.0
