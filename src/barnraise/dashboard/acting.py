"""The actions of a host on a page: each is a request to the run's controller, or a link to give away."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from barnraise.account.page.veil import Veil
from barnraise.assembly import actions
from barnraise.core.errors import InputError
from barnraise.dashboard.passes import GUEST, NODE, OBSERVER, signed
from barnraise.ledger import LedgerView, RunDirectory

MOST_USES, MOST_DAYS = 1000, 3650


class Acting:
    """Does what a host asks for; `key` signs the tokens of links."""

    def __init__(self, run: RunDirectory, key: str) -> None:
        self.run, self._key = run, key
        self._known: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "finish": lambda given: {"told": actions.finish(self.run)},
            "pause": lambda given: {"told": actions.pause(self.run, _text(given, "reason"))},
            "continue": lambda given: {"told": actions.carry_on(self.run)},
            "revoke": self._revoke,
            "invite": self._invite,
            "share": self._share,
        }

    @property
    def names(self) -> list[str]:
        """Return the names of all actions."""
        return list(self._known)

    def act(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """Do one action; return `told`, a sentence, and what it made. Raises InputError, RunDirectoryError."""
        known = self._known.get(name)
        if known is None:
            raise InputError(f"there is no action '{name}': there are {', '.join(self._known)}")
        return known(given)

    def _revoke(self, given: dict[str, Any]) -> dict[str, Any]:
        node = self._node(given)
        return {"told": actions.revoke(self.run, node, _text(given, "reason"))}

    def _invite(self, given: dict[str, Any]) -> dict[str, Any]:
        uses, hours = (
            int(_number(given, "uses", 1, 1, MOST_USES)),
            _number(given, "hours", 24.0, 0.01, 24.0 * MOST_DAYS),
        )
        invite = actions.invite(self.run, uses=uses, hours=hours)
        path = f"/join?token={signed(self._key, GUEST, hours / 24.0)}#{invite}"
        return {"told": "this invite admits machines to the run", "invite": str(invite), "path": path}

    def _share(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return a link for an observer, or for the one who lends a node."""
        days = _number(given, "days", 30.0, 0.01, MOST_DAYS)
        if given.get("node"):
            return {"told": "this link opens the page of that worker alone", "path": self.path(days, self._node(given))}
        return {
            "told": "this link opens the run without names, losses per worker and addresses",
            "path": self.path(days),
        }

    def path(self, days: float, node: str = "") -> str:
        """Return the path of a link for an observer, or of the page of one node."""
        role = NODE if node else OBSERVER
        return f"/{'me' if node else ''}?token={signed(self._key, role, days, node)}"

    def _node(self, given: dict[str, Any]) -> str:
        wanted = _text(given, "node")
        with LedgerView(self.run.ledger) as view:
            found = next((name for name in view.names() if wanted in (name, Veil().name(name))), None)
        if found is None:
            raise InputError(f"the run has no node '{wanted}'")
        return found


def _text(given: dict[str, Any], key: str) -> str:
    found = given.get(key, "")
    if not isinstance(found, str) or len(found) > 1000:
        raise InputError(f"'{key}' must be a text of at most 1,000 characters")
    return found


def _number(given: dict[str, Any], key: str, usual: float, least: float, most: float) -> float:
    found = given.get(key, usual)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise InputError(f"'{key}' must be a number")
    if not least <= found <= most:
        raise InputError(f"'{key}' is {found:g}, but must be from {least:g} to {most:g}")
    return found
