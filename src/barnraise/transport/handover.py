"""The listener that a run's workers reach, held by its controller or by a standby that may become it."""

from __future__ import annotations

from collections import ChainMap, deque

from barnraise.transport.base import Delivery, Listener
from barnraise.transport.identity import Keys
from barnraise.transport.several import listener_for


class HandoverListener:
    """A listener that a standby hands over to the controller that it becomes.

    Connections stay, and messages that were set aside are read again.
    """

    def __init__(self) -> None:
        self.aside: dict[str, Delivery] = {}  # the newest message by key, for the next reader
        self._members: ChainMap[str, str] = ChainMap()
        self._unread: deque[Delivery] = deque()
        self._listener: Listener | None = None
        self._uri = ""

    @property
    def listener(self) -> Listener:
        assert self._listener is not None, "it is open"
        return self._listener

    async def open(self, uri: str, keys: Keys, *members: dict[str, str]) -> str:
        """Listen at `uri` for `members` (key -> name), and return the URI with the ports that were taken.

        Messages that were set aside are returned first. An open listener stays where it is, for these members. Raises
        AddressError.
        """
        self._members.maps = list(members)
        self._unread.extend(self.aside.values())
        self.aside.clear()
        if self._listener is None:
            listener = listener_for(uri)
            listener.members = self._members
            self._uri, self._listener = await listener.bind(uri, keys), listener
        return self._uri

    async def receive_many(self) -> list[Delivery]:
        """Receive as the listener does, messages that were set aside first."""
        if self._unread:
            batch = list(self._unread)
            self._unread.clear()
            return batch
        return await self.listener.receive_many()

    async def close(self, linger: float = 0.0) -> None:
        """Close the listener, which may be opened again."""
        listener, self._listener = self._listener, None
        self.aside.clear()
        self._unread.clear()
        if listener is not None:
            await listener.close(linger)
