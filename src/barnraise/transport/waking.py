"""Wake-ups between coroutines of one event loop."""

from __future__ import annotations

import asyncio


class Signal:
    """Wakes all coroutines that wait at that moment.

    It has no memory: check, then wait, with no await between.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}  # in the order of waiting

    def __bool__(self) -> bool:
        """Return whether a coroutine waits."""
        return bool(self._waiting)

    def wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    async def wait(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        try:
            await future
        finally:
            self._waiting.pop(future, None)
