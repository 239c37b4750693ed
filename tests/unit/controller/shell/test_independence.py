"""Which trustees the host is warned about as they join."""

from __future__ import annotations

import pytest

from barnraise.controller.shell.independence import dependence
from barnraise.controller.state.state import Badge, NodeState
from barnraise.trust.roles import TRUSTEE, WORKER

HOME = "0123456789abcdef"


def nodes() -> list[NodeState]:
    gone = NodeState("gone", Badge(role=TRUSTEE, owner=HOME), revoked="it left")
    worker = NodeState("ann", Badge(role=WORKER, owner=HOME))
    return [gone, worker, NodeState("t1", Badge(role=TRUSTEE, owner=HOME)), NodeState("t2", Badge(role=TRUSTEE))]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_a_trustee_on_the_host_s_machine_is_named(address: str) -> None:
    told = dependence("t3", "", address, [], 1)
    assert told.startswith("trustee 't3' joined from this machine")
    assert "barnraise revoke RUN_DIR t3" in told


def test_trustees_of_one_network_are_named_together() -> None:
    told = dependence("t3", HOME, "93.184.216.34", nodes(), 1)
    assert told.startswith("2 trustees joined from one network (t1, t3)")
    assert "at most 1 may pool their seeds" in told


@pytest.mark.parametrize(("owner", "address"), [("fedcba9876543210", "93.184.216.34"), ("", "10.1.2.3"), ("", "")])
def test_trustees_of_other_networks_and_listed_ones_pass_without_a_warning(owner: str, address: str) -> None:
    assert dependence("t3", owner, address, nodes(), 1) == ""
