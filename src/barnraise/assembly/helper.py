"""The helper process of workers or links, as seen by the controller's process: orders and reports."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path

from barnraise.faults.supervisor import Start, kept


class Helper:
    """A helper process of this process, which ends with it, or of a supervisor.

    A supervisor's may have served a controller before (`again`).
    """

    def __init__(
        self,
        orders: asyncio.StreamWriter,
        reports: asyncio.StreamReader,
        process: asyncio.subprocess.Process | None,
        *,
        again: bool = False,
    ) -> None:
        self._orders, self._reports, self._process, self.again = orders, reports, process, again

    @classmethod
    async def start(cls, role: str, module: str, log: Path) -> Helper:
        """Start a helper that runs `module`, its errors in `log`; `role` is one of the supervisor's."""
        supervisor = kept()
        if supervisor is not None:
            if not supervisor.played:
                supervisor.wish(Start(role, module, str(log)))
            return cls(*await _streams(*supervisor.pipes[role]), None, again=bool(supervisor.played))
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, str(os.getpid()),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        return cls(process.stdin, process.stdout, process)

    @property
    def own(self) -> bool:
        """Return whether it ends with this process."""
        return self._process is not None

    def order(self, line: bytes) -> None:
        self._orders.write(line + b"\n")

    async def report(self) -> bytes:
        """Return the next line; empty when there will be none."""
        return await self._reports.readline()

    def no_more_orders(self) -> None:
        self._orders.close()

    def kill(self) -> None:
        """Kill the process, unless it has ended, or is the supervisor's."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def wait(self, seconds: float) -> None:
        """Wait until it has ended; after `seconds` it is killed.

        The supervisor's lives on.
        """
        if self._process is None:
            return
        try:
            await asyncio.wait_for(self._process.wait(), seconds)
        except TimeoutError:
            self.kill()
            await self._process.wait()


async def _streams(orders: int, reports: int) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await loop.connect_read_pipe(lambda: protocol, os.fdopen(reports, "rb", 0))
    transport, _ = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(orders, "wb", 0))
    return asyncio.StreamWriter(transport, protocol, None, loop), reader
