"""Warnings for a host about trustees that are not independent: on its own machine, or of one owner."""

from __future__ import annotations

from collections.abc import Iterable

from barnraise.controller.state.state import NodeState
from barnraise.core.units import count_text
from barnraise.transport.reach import AddressReach, reach
from barnraise.trust.roles import TRUSTEE

_ADVICE = "invite people who do not share what they hold, and free this seat with `barnraise revoke RUN_DIR {node}`"


def dependence(node: str, owner: str, address: str, nodes: Iterable[NodeState], colluding: int) -> str:
    """Say whom the trustee `node`, which joins from `address`, depends on; empty where nothing tells.

    `owner` is the same for all machines of a network, "" where the host named the machine's key. `nodes` are those of
    the run. More trustees than `colluding` that pool their seeds remove the masks.
    """
    advice = _ADVICE.format(node=node)
    if _is_here(address):
        return f"trustee '{node}' joined from this machine, so its seeds are no secret from the host: {advice}"
    others = (one for one in nodes if one.badge.role == TRUSTEE and not one.revoked and one.id != node)
    same = [one.id for one in others if owner and one.badge.owner == owner]
    if not same:
        return ""
    names = ", ".join(sorted([*same, node]))
    return (
        f"{count_text(len(same) + 1, 'trustee')} joined from one network ({names}), which counts as one owner, and at "
        f"most {colluding} may pool their seeds: {advice}; or list their keys (RUN_DIR/keys/allow) where you know that "
        "the owners differ"
    )


def _is_here(address: str) -> bool:
    try:
        return reach(address) is AddressReach.MACHINE
    except ValueError:
        return False
