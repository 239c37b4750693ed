"""The handshake against a published vector, and against attackers that alter, replay or misdirect it."""

from __future__ import annotations

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from zmq.utils import z85

from barnraise.core.errors import WireError
from barnraise.transport import Keys
from barnraise.transport.http.noise import Initiator, Responder, nonce

SERVER, CLIENT = Keys.generate(), Keys.generate()

# The vector of Noise_IK_25519_ChaChaPoly_SHA256 in `cacophony.txt`, which implementations of Noise are tested with.
PROLOGUE = bytes.fromhex("4a6f686e2047616c74")
CLIENT_STATIC = "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1"
CLIENT_EPHEMERAL = "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a"
SERVER_STATIC = "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893"
SERVER_EPHEMERAL = "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b"
SERVER_PUBLIC = "31e0303fd6418d2f8c0e78b91f22e8caed0fbe48656dcf4767e4834f701b8f62"
MESSAGES = [
    (
        "4c756477696720766f6e204d69736573",
        "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944718da798efbcd91528520204f904b9bd6c7413dccdc2"
        "14d951e15253e39987f18146e8cd0873654207148333479d4d16c289f0294b29960a72f48e0b7bba2e89083169825e59642148d49202"
        "0664ccf7",
    ),
    (
        "4d757272617920526f746862617264",
        "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f1448088435361e70b2ed446e6c9ec387d1d6b3b840f194e373979"
        "d241b203c4acafccf5",
    ),
    ("462e20412e20486179656b", "050e9f3c8fac16b68dbce8f8c4bfbf6617c897f9ada4aa29aa19c8"),
    ("4361726c204d656e676572", "344233a6cabb7141d80f3da2fedc311d9646bbb0f505afe403a667"),
]


def keys(secret: str) -> Keys:
    private = X25519PrivateKey.from_private_bytes(bytes.fromhex(secret))
    public = z85.encode(private.public_key().public_bytes_raw()).decode()
    return Keys(public, z85.encode(bytes.fromhex(secret)).decode())


def ephemeral(secret: str) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(secret))


def test_the_published_vector() -> None:
    server = keys(SERVER_STATIC)
    assert z85.decode(server.public).hex() == SERVER_PUBLIC
    initiator = Initiator(keys(CLIENT_STATIC), server.public, PROLOGUE, ephemeral(CLIENT_EPHEMERAL))
    responder = Responder(server, PROLOGUE, ephemeral(SERVER_EPHEMERAL))
    (first, first_sealed), (second, second_sealed), (third, third_sealed), (fourth, fourth_sealed) = MESSAGES
    message = initiator.start(bytes.fromhex(first))
    assert message.hex() == first_sealed
    assert responder.accept(message) == (keys(CLIENT_STATIC).public, bytes.fromhex(first))
    message, server_ciphers = responder.reply(bytes.fromhex(second))
    assert message.hex() == second_sealed
    payload, client_ciphers = initiator.finish(message)
    assert payload.hex() == second
    assert client_ciphers.send.encrypt(nonce(0, 0), bytes.fromhex(third), b"").hex() == third_sealed
    assert client_ciphers.receive.decrypt(nonce(0, 0), bytes.fromhex(fourth_sealed), b"").hex() == fourth
    assert server_ciphers.receive.decrypt(nonce(0, 0), bytes.fromhex(third_sealed), b"").hex() == third


def test_zmq_keys_are_its_keys() -> None:
    initiator, responder = Initiator(CLIENT, SERVER.public), Responder(SERVER)
    key, payload = responder.accept(initiator.start(b"hello"))
    assert (key, payload) == (CLIENT.public, b"hello")
    answer, theirs = responder.reply(b"you are in")
    payload, ours = initiator.finish(answer)
    assert payload == b"you are in"
    assert theirs.receive.decrypt(nonce(1, 7), ours.send.encrypt(nonce(1, 7), b"x", b"h"), b"h") == b"x"
    with pytest.raises(InvalidTag):
        theirs.send.decrypt(nonce(1, 7), ours.send.encrypt(nonce(1, 7), b"x", b"h"), b"h")


@given(st.data())
def test_every_alteration_of_a_handshake_is_noticed(data: st.DataObject) -> None:
    initiator, responder = Initiator(CLIENT, SERVER.public), Responder(SERVER)
    message = bytearray(initiator.start())
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, 8 * len(message) - 1).filter(lambda bit: bit != 255))  # ignored by X25519
        message[at // 8] ^= 1 << at % 8
        with pytest.raises(WireError):
            responder.accept(bytes(message))
    else:
        responder.accept(bytes(message))
        answer = bytearray(responder.reply(b"session")[0])
        at = data.draw(st.integers(0, 8 * len(answer) - 1))
        answer[at // 8] ^= 1 << at % 8
        with pytest.raises(WireError):
            initiator.finish(bytes(answer))


@given(st.binary(max_size=300))
def test_anything_else_is_no_handshake(noise: bytes) -> None:
    with pytest.raises(WireError):
        Responder(SERVER).accept(noise)
    initiator = Initiator(CLIENT, SERVER.public)
    initiator.start()
    with pytest.raises(WireError):
        initiator.finish(noise)


def test_a_handshake_for_another_controller_or_protocol_leads_nowhere() -> None:
    for initiator in (Initiator(CLIENT, Keys.generate().public), Initiator(CLIENT, SERVER.public, b"another")):
        with pytest.raises(WireError, match="another key"):
            Responder(SERVER).accept(initiator.start())


def test_an_answer_belongs_to_one_handshake() -> None:
    first, second = Initiator(CLIENT, SERVER.public), Initiator(CLIENT, SERVER.public)
    responder = Responder(SERVER)
    responder.accept(first.start())
    second.start()
    with pytest.raises(WireError):
        second.finish(responder.reply()[0])


def test_a_replayed_handshake_gives_keys_that_its_replayer_does_not_have() -> None:
    initiator = Initiator(CLIENT, SERVER.public)
    message = initiator.start()
    sessions = []
    for _ in range(2):
        responder = Responder(SERVER)
        responder.accept(message)
        sessions.append(responder.reply())
    _, ours = initiator.finish(sessions[0][0])
    sealed = ours.send.encrypt(nonce(1, 0), b"hello", b"")
    assert sessions[0][1].receive.decrypt(nonce(1, 0), sealed, b"") == b"hello"
    with pytest.raises(InvalidTag):
        sessions[1][1].receive.decrypt(nonce(1, 0), sealed, b"")


def test_the_thief_of_a_controllers_key_cannot_be_a_worker_there() -> None:
    """Key compromise impersonation: the first message can be forged with that key, what follows cannot."""
    stolen = X25519PrivateKey.from_private_bytes(z85.decode(SERVER.secret))

    class Forged:
        """Stands for the client's secret key: gives what the thief can compute of it."""

        def exchange(self, public: X25519PublicKey) -> bytes:
            return stolen.exchange(X25519PublicKey.from_public_bytes(z85.decode(CLIENT.public)))

        def public_key(self) -> X25519PublicKey:
            return X25519PublicKey.from_public_bytes(z85.decode(CLIENT.public))

    thief, responder = Initiator(CLIENT, SERVER.public), Responder(SERVER)
    thief._static = Forged()
    assert responder.accept(thief.start())[0] == CLIENT.public
    with pytest.raises(WireError):
        thief.finish(responder.reply()[0])


@pytest.mark.parametrize("point", [bytes(32), bytes([1]) + bytes(31)])
def test_points_of_small_order_are_refused(point: bytes) -> None:
    with pytest.raises(WireError, match="a public key that is none"):
        Responder(SERVER).accept(point + bytes(64))
