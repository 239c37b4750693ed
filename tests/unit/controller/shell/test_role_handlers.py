"""Messages are decoded, and handled, as the table of roles says."""

from __future__ import annotations

import random

import pytest

from barnraise.controller.shell.rate_limits import RateLimits
from barnraise.controller.shell.role_handlers import RoleHandler, decode_incoming, load
from barnraise.core.errors import WireError
from barnraise.core.types import NodeProfile
from barnraise.trust.roles import ROLES, Role, of_nodes, refusal, said_by
from barnraise.wire import encode
from barnraise.wire import messages as m
from barnraise.wire.following import Copy, Follow
from barnraise.wire.observing import Observe

from ....intrude.values import Hostile

DIGEST = "ab" * 32
ENROL = m.Enrol(m.PROTOCOL_VERSION, "00ff", "node", DIGEST, DIGEST, DIGEST)
FOLLOW = Follow(m.PROTOCOL_VERSION, "00ff", "node", DIGEST, DIGEST, "zmq://127.0.0.1:9")
OBSERVE = Observe(m.PROTOCOL_VERSION, "00ff", "node", DIGEST, DIGEST)
HELLO = m.Hello(m.PROTOCOL_VERSION, 1, 1, NodeProfile(), -1)


class TestNotEnrolled:
    @pytest.mark.parametrize("message", [ENROL, FOLLOW, OBSERVE])
    def test_may_send_a_greeting(self, message: m.Message) -> None:
        assert decode_incoming(encode(message), enrolled=False) == (message, None)

    @pytest.mark.parametrize("message", [m.RequestTask(1), m.Leave(), HELLO, Copy(1)])
    def test_may_send_nothing_else(self, message: m.Message) -> None:
        with pytest.raises(WireError, match="Invalid value"):
            decode_incoming(encode(message), enrolled=False)

    def test_is_held_to_the_small_limit(self) -> None:
        with pytest.raises(WireError, match=str(m.ENROL_LIMIT)):
            decode_incoming([*encode(ENROL), bytes(m.ENROL_LIMIT)], enrolled=False)


class TestEnrolled:
    @pytest.mark.parametrize("message", [ENROL, HELLO, m.RequestTask(1), m.Leave()])
    def test_may_send_the_messages_of_nodes(self, message: m.Message) -> None:
        assert decode_incoming(encode(message), enrolled=True) == (message, None)

    @pytest.mark.parametrize("message", [FOLLOW, OBSERVE, Copy(1), m.Ack(1, True)])
    def test_may_not_send_those_of_others(self, message: m.Message) -> None:
        with pytest.raises(WireError, match="Invalid value"):
            decode_incoming(encode(message), enrolled=True)


@pytest.mark.parametrize("role", ROLES.values(), ids=ROLES)
def test_each_role_has_a_handler_of_its_greeting(role: Role) -> None:
    assert issubclass(load(role.handler), RoleHandler)
    sharing = [other for other in ROLES.values() if other.greeting is role.greeting]
    assert {other.handler for other in sharing} == {role.handler}


def test_a_message_outside_of_the_role_is_refused_by_name() -> None:
    assert refusal("observer", ENROL) == "a observer may not say Enrol"
    assert refusal("king", ENROL) == "a king may not say Enrol"
    assert refusal("standby", FOLLOW) == ""


def test_each_message_of_a_node_has_a_rate_limit() -> None:
    rates, hostile = RateLimits(), Hostile(random.Random(1))
    for kind in said_by(of_nodes()):
        message = hostile.message(kind, 0.0)
        said = [rates.excess("ann", message, 0.0) for _ in range(8001)]
        assert said[0] == ""
        assert said[-1].endswith(f"{kind.__name__} a second")
