"""Whether acknowledgements wait for a standby: a state machine without clock, socket, file or randomness."""

from __future__ import annotations

from collections.abc import Collection, Iterable


class Durability:
    """Decides whether acknowledgements wait for a standby.

    With `wait`, an acknowledgement waits until a standby has its rows, but for no longer than a controller has been
    `patience` seconds without one: from then on durability is `lowered`, and the controller's own disk is enough, until
    a standby that could take over follows again.

    A standby that is cut off from this controller may have taken over with more than half of the workers that lived at
    its last message. So durability is lowered only where at least half of these are here: not both can be.
    """

    def __init__(self, wait: bool, patience: float, now: float, living: Iterable[str] = ()) -> None:
        """Begin without a standby; `living` were there when the controller before ended."""
        self.wait, self.patience = wait, patience
        self.lowered = False
        self.unprotected = 0  # acknowledgements without a standby, while one was wanted
        self.missed = frozenset(living)  # workers that lived at a standby's last message
        self._alone_since: float | None = now

    @property
    def waits(self) -> bool:
        """Return whether an acknowledgement has to wait now."""
        return self.wait and not self.lowered

    def alone(self, now: float) -> None:
        """Record that no standby follows from `now` on."""
        self._alone_since = now if self._alone_since is None else self._alone_since

    def heard(self, living: Iterable[str], *, complete: bool) -> bool:
        """Record a standby's message, and return whether durability is restored by it.

        It could take over if it is `complete`, and the `living` workers live.
        """
        self.missed = frozenset(living)
        if not complete:
            return False
        self._alone_since, lowered, self.lowered = None, self.lowered, False
        return lowered

    def over(self, now: float) -> bool:
        """Return whether patience is over."""
        return self.waits and self._alone_since is not None and now - self._alone_since >= self.patience

    def lower(self, now: float, here: Collection[str]) -> bool:
        """Return whether durability is lowered from `now` on, as these workers are here."""
        if not self.over(now) or 2 * len(self.missed.intersection(here)) < len(self.missed):
            return False
        self.lowered = True
        return True
