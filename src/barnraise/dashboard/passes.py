"""The tokens that open a dashboard, by role: the host's, an observer's, a guest's who may join, and a node's own.

The host's is the run's key itself. The others are signed with it, so that none is kept anywhere: ROLE.EXPIRY.NODE.MAC.
A new key, made where the file is deleted, takes all of them back.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import time
from typing import NamedTuple

from barnraise.core.errors import InputError

HOST, LOCAL, OBSERVER, GUEST, NODE = "host", "local", "observer", "guest", "node"
SIGNED = (OBSERVER, GUEST, NODE)
"""Roles of tokens that are signed."""

LONGEST = 600
"""Characters of a token, at most."""


class Pass(NamedTuple):
    """The rights of a visitor by `role`, and for the role NODE which node.

    LOCAL is a visitor of the same machine without a token, who sees all and changes nothing.
    """

    role: str
    node: str = ""

    @property
    def acts(self) -> bool:
        """Return whether the visitor may finish or pause the run, and invite to it."""
        return self.role == HOST

    @property
    def sees_names(self) -> bool:
        """Return whether the visitor sees the names of nodes, their stories and the run's addresses."""
        return self.role in (HOST, LOCAL)

    @property
    def sees_run(self) -> bool:
        """Return whether the visitor sees the run, and not only the page of one node or the join page."""
        return self.role in (HOST, LOCAL, OBSERVER)


def signed(key: str, role: str, days: float, node: str = "", now: float | None = None) -> str:
    """Return a token of a role in SIGNED that is good for `days`; math.inf without an end."""
    assert role in SIGNED
    moment = time.time() if now is None else now
    expiry = "0" if days == math.inf else str(math.ceil(moment + 86_400 * days))
    body = f"{role}.{expiry}.{base64.urlsafe_b64encode(node.encode()).decode().rstrip('=')}"
    return f"{body}.{_mac(key, body)}"


def read(key: str, token: str, now: float | None = None) -> Pass:
    """Return the pass of a token. Raises InputError with the reason why it opens nothing."""
    if hmac.compare_digest(token.encode("utf-8", "replace"), key.encode()):
        return Pass(HOST)
    body, _, mac = token.rpartition(".")
    parts = body.split(".")
    if len(token) > LONGEST or len(parts) != 3 or not hmac.compare_digest(
        mac.encode("utf-8", "replace"), _mac(key, body).encode()
    ):  # fmt: skip
        raise InputError("this token is wrong: ask the host of the run for a link")
    role, expiry, node = parts
    if expiry != "0" and (time.time() if now is None else now) >= int(expiry):
        raise InputError("this link has expired: ask the host of the run for another")
    return Pass(role, base64.urlsafe_b64decode(node + "=" * (-len(node) % 4)).decode())


def _mac(key: str, body: str) -> str:
    return hmac.new(key.encode(), f"barnraise dashboard {body}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()
