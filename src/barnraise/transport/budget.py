"""A common account of the bytes that wait, in and out, for all peers of a process."""

from __future__ import annotations

from collections.abc import Hashable

from barnraise.transport.waking import Signal

TOTAL = 1 << 30
"""Bytes that may wait in all."""

SHARE = 16 << 20
"""Bytes that may wait for or from one peer in the transport."""


class Budget:
    """Bytes by owner: a peer's public key, or another name of their holder.

    `take` checks the limits first, and is for bytes that can be refused: a reply, or further reading. `charge` is for
    bytes that are already here. Answers may hold half of the total, so that unread answers never block incoming
    messages. A listener returns no messages while the total is `spent`: a holder of their bytes charges them, and so
    slows all senders down.
    """

    def __init__(self, total: int = TOTAL, share: int = SHARE) -> None:
        self.total, self.share = total, share
        self.waiting = 0
        self._answers = 0
        self._held: dict[Hashable, int] = {}
        self._given = Signal()

    def __getitem__(self, owner: Hashable) -> int:
        """Return the bytes that wait on the account of `owner`."""
        return self._held.get(owner, 0)

    @property
    def spent(self) -> bool:
        """Return whether there is no room for more."""
        return self.waiting >= self.total

    def take(self, owner: Hashable, num_bytes: int, *, answer: bool = False) -> bool:
        """Charge `num_bytes` if the share of `owner` and the whole have room for them; else False."""
        if self[owner] + num_bytes > self.share or self.waiting + num_bytes > self.total:
            return False
        if answer and self._answers + num_bytes > self.total // 2:
            return False
        self.charge(owner, num_bytes, answer=answer)
        return True

    def charge(self, owner: Hashable, num_bytes: int, *, answer: bool = False) -> None:
        """Charge bytes that wait from now on, whether there is room for them or not."""
        self.waiting += num_bytes
        self._answers += num_bytes if answer else 0
        self._held[owner] = self[owner] + num_bytes

    def give(self, owner: Hashable, num_bytes: int, *, answer: bool = False) -> None:
        """Release bytes that no longer wait."""
        self.charge(owner, -num_bytes, answer=answer)
        if not self._held[owner]:
            del self._held[owner]
        if num_bytes:
            self._given.wake()

    async def freed(self) -> None:
        """Wait until bytes are released, or `wake` is called."""
        await self._given.wait()

    def wake(self) -> None:
        """Let all callers that wait for room check again."""
        self._given.wake()
