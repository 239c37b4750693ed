"""Processes that draw blocks of formulas, as seen by the process that reads them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from queue import SimpleQueue

import numpy as np

from barnraise.data.sat.blocks import BlockPlan
from barnraise.data.sat.drawing_process import HEAD
from barnraise.data.sat.packed_blocks import ID, ROW, PackedBlock

AHEAD = 2
"""Blocks for each process that are drawn before the reader asks for them, at most."""

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class ProcessLostError(Exception):
    """A process that draws formulas ended too early."""


def drawn_blocks(plan: BlockPlan, processes: int, first: int) -> Generator[PackedBlock | None, None, None]:
    """Yield blocks from number `first` on, in order, without end; None in place of one that cannot be drawn.

    The processes end with the iterator. They are programs of their own: nothing of this process is forked or imported
    again. Raises ProcessLostError when one of them has ended, as for want of memory.
    """
    order = plan.encode()
    crew: list[_DrawingProcess] = []
    idle: SimpleQueue[_DrawingProcess] = SimpleQueue()
    threads = ThreadPoolExecutor(processes, "drawing")  # each waits for one process
    waiting: deque[Future[PackedBlock | None]] = deque()

    def draw(number: int) -> PackedBlock | None:
        process = idle.get()
        try:
            return process.draw(number)
        finally:
            idle.put(process)

    try:
        for _ in range(processes):
            crew.append(_DrawingProcess(order))
            idle.put(crew[-1])
        for number in count(first):
            waiting.append(threads.submit(draw, number))
            if len(waiting) == AHEAD * processes:
                yield waiting.popleft().result()
    finally:
        for process in crew:
            process.kill()
        threads.shutdown(cancel_futures=True)
        for process in crew:
            process.close()


class _DrawingProcess:
    """One process that draws blocks."""

    def __init__(self, plan: bytes) -> None:
        self._unsent = plan + b"\n"
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "barnraise.data.sat.drawing_process", str(os.getpid())],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ | _ONE_THREAD,
                process_group=0,  # the signals of a terminal reach the reader alone
            )  # fmt: skip
        except OSError as error:
            raise ProcessLostError from error

    def draw(self, number: int) -> PackedBlock | None:
        """Return a block; None where the process could not draw it."""
        assert self._process.stdin is not None
        lines, self._unsent = self._unsent + b"%d\n" % number, b""
        try:
            self._process.stdin.write(lines)
            self._process.stdin.flush()
        except OSError as error:
            raise ProcessLostError from error
        num_rows, num_ids = HEAD.unpack(self._read(HEAD.size))
        if num_rows < 0:
            return None
        rows = np.frombuffer(self._read(num_rows * ROW.itemsize), ROW)
        return PackedBlock(rows, np.frombuffer(self._read(num_ids * ID.itemsize), ID))

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        content = self._process.stdout.read(size)
        if len(content) < size:
            raise ProcessLostError
        return content

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """Wait until the killed process has ended."""
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):  # orders that were not sent
                pipe.close()
