"""The admission of connections and their limits: the answers of the ZAP handler, and the options of the sockets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from zmq.utils import z85

from barnraise.transport import Keys
from barnraise.transport.zmq.options import new_context, new_dealer, new_router
from barnraise.transport.zmq.zap import DOMAIN, ZapHandler
from barnraise.wire.messages import FRAME_LIMIT

SERVER = Keys.generate()


@pytest.fixture
def zap_handler() -> Iterator[ZapHandler]:
    supervisor = object.__new__(ZapHandler)  # its answers alone, without a socket
    supervisor.revoked = {z85.encode(b"r" * 32).decode()}
    return supervisor


def request(key: bytes = b"k" * 32, domain: bytes = DOMAIN, mechanism: bytes = b"CURVE") -> list[bytes]:
    return [b"client", b"", b"1.0", b"7", domain, b"127.0.0.1", b"", mechanism, key]


def test_any_key_is_let_in_and_passed_on(zap_handler: ZapHandler) -> None:
    user = z85.encode(b"k" * 32)
    assert zap_handler.answer(request()) == [b"client", b"", b"1.0", b"7", b"200", b"OK", user, b""]


@pytest.mark.parametrize(
    "wrong",
    [
        request(key=b"r" * 32),
        request(key=b"k" * 31),
        request(domain=b""),
        request(domain=b"*"),
        request(mechanism=b"NULL"),
        request(mechanism=b"PLAIN"),
        request()[:-1],
        [*request(), b"more"],
        [b"client", b"", b"0.9", *request()[3:]],
    ],
)
def test_anything_else_is_answered_with_a_refusal(zap_handler: ZapHandler, wrong: list[bytes]) -> None:
    reply = zap_handler.answer(wrong)
    assert reply is not None
    assert reply[:5] == [b"client", b"", b"1.0", b"7", b"400"]
    assert reply[6:] == [b"", b""]


@given(st.lists(st.binary(max_size=40) | st.sampled_from(request()), max_size=12))
def test_the_handler_never_raises(frames: list[bytes]) -> None:
    supervisor = object.__new__(ZapHandler)
    supervisor.revoked = set()
    reply = supervisor.answer(frames)
    assert reply is None or len(reply) == 8


def test_all_limits_are_set() -> None:
    context = new_context(1)
    try:
        with new_router(context, SERVER, DOMAIN, ipv6=False) as router:
            assert router.getsockopt(zmq.ZAP_DOMAIN) == DOMAIN
            assert router.getsockopt(zmq.ZAP_ENFORCE_DOMAIN) == 1
            assert router.getsockopt(zmq.MECHANISM) == zmq.CURVE
            assert FRAME_LIMIT < router.getsockopt(zmq.MAXMSGSIZE) < FRAME_LIMIT + 10_000
            assert 0 < router.getsockopt(zmq.SNDHWM) <= 64
            assert 0 < router.getsockopt(zmq.RCVHWM) <= 64
        with new_dealer(context, Keys.generate(), SERVER.public, ipv6=True) as dealer:
            assert FRAME_LIMIT < dealer.getsockopt(zmq.MAXMSGSIZE) < FRAME_LIMIT + 10_000
            assert dealer.getsockopt(zmq.HEARTBEAT_IVL) <= 0, "libzmq may abort the process when one is due"
            assert dealer.getsockopt(zmq.IPV6) == 1
    finally:
        context.term()
