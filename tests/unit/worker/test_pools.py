"""The threads of a worker's process."""

from __future__ import annotations

import os
from concurrent.futures import Executor

import pytest

from barnraise.core.threads import LATER, Crew
from barnraise.worker.pools import Pools

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="threads have their own priority on Linux alone")


def priority() -> tuple[int, int]:
    return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)


def priorities(pools: Pools) -> list[tuple[int, int]]:
    def of(pool: Executor) -> tuple[int, int]:
        return pool.submit(priority).result()

    return [of(pools.training), of(pools.updating), of(pools.encoding)]


def test_the_threads_of_a_cpu_are_batch_work_alike() -> None:
    pools = Pools("cpu")
    assert priorities(pools) == [(os.SCHED_BATCH, priority()[1])] * 3
    pools.shutdown()


def test_an_exchange_yields_to_the_thread_that_feeds_a_device() -> None:
    pools, here = Pools("cuda"), priority()
    later = (os.SCHED_BATCH, min(19, here[1] + LATER))
    assert priorities(pools) == [here, later, later]
    shared = pools.encoding.submit(lambda: Crew(2).each(lambda _: priority(), range(4))).result()
    assert shared == [later] * 4
    pools.shutdown()
