"""One account of the bytes that wait, in and out, for all peers of a process: what is spent is not taken again."""

from __future__ import annotations

from collections.abc import Hashable

from barnraise.transport.waking import Signal

TOTAL = 1 << 30
"""Bytes that may wait in all."""

SHARE = 16 << 20
"""Bytes that may wait for or from one peer in the transport."""


class Budget:
    """Bytes by who answers for them: a peer's public key, or whatever else its holder calls itself.

    `take` asks first, and is for what can be refused: a reply, or reading on. `charge` is for what is here already.
    Answers may hold half of the whole, so that what nobody reads never stops what comes in. A listener returns no
    messages while the whole is `spent`: who keeps their bytes charges them, and so slows all senders down.
    """

    def __init__(self, total: int = TOTAL, share: int = SHARE) -> None:
        self.total, self.share = total, share
        self.waiting = 0
        self._answers = 0
        self._held: dict[Hashable, int] = {}
        self._given = Signal()

    def __getitem__(self, owner: Hashable) -> int:
        """What waits on the account of `owner`."""
        return self._held.get(owner, 0)

    @property
    def spent(self) -> bool:
        """Whether there is no room for more."""
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
        """These bytes wait from now on, whether there is room for them or not."""
        self.waiting += num_bytes
        self._answers += num_bytes if answer else 0
        self._held[owner] = self[owner] + num_bytes

    def give(self, owner: Hashable, num_bytes: int, *, answer: bool = False) -> None:
        """These bytes wait no longer."""
        self.charge(owner, -num_bytes, answer=answer)
        if not self._held[owner]:
            del self._held[owner]
        if num_bytes:
            self._given.wake()

    async def freed(self) -> None:
        """Wait until something is given back, or `wake` is called."""
        await self._given.wait()

    def wake(self) -> None:
        """Let everybody who waits for room look again."""
        self._given.wake()
