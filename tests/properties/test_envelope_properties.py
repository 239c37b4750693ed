"""Sealed envelopes and their XML: what was packed comes out, and everything altered, repeated or reordered does not."""

from __future__ import annotations

import contextlib
import xmlrpc.client

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.core.errors import WireError
from barnraise.transport import Keys
from barnraise.transport.http import marshalling
from barnraise.transport.http.envelope import (
    BATCH,
    CONTENT_LIMIT,
    ENVELOPE_LIMIT,
    PULL,
    PUSH,
    Answerer,
    Asker,
    Pace,
    pack,
    packed_bytes,
    split,
    unpack,
)
from barnraise.transport.http.noise import Initiator, Responder

SESSION = bytes(range(16))
BATCHES = st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=3), max_size=8)


def channel(number: int = PUSH) -> tuple[Asker, Answerer]:
    server = Keys.generate()
    initiator, responder = Initiator(Keys.generate(), server.public), Responder(server)
    responder.accept(initiator.start())
    answer, theirs = responder.reply()
    return Asker(SESSION, number, initiator.finish(answer)[1]), Answerer(SESSION, number, theirs)


@given(BATCHES)
def test_a_batch_comes_out_as_it_went_in(batch: list[list[bytes]]) -> None:
    content = pack(batch)
    assert len(content) == sum(map(packed_bytes, batch))
    assert [[bytes(frame) for frame in frames] for frames in unpack(content)] == batch


@given(st.binary(max_size=500))
def test_any_bytes_are_a_batch_or_refused(content: bytes) -> None:
    with contextlib.suppress(WireError):
        messages = unpack(content)
        assert sum(len(frame) for frames in messages for frame in frames) <= len(content)


@given(BATCHES.filter(bool), st.integers(min_value=1))
def test_a_truncated_batch_is_refused_or_shorter(batch: list[list[bytes]], cut: int) -> None:
    content = pack(batch)
    with contextlib.suppress(WireError):
        assert len(unpack(content[: len(content) - 1 - cut % len(content)])) < len(batch)


def test_batches_are_as_large_as_the_link_is_fast() -> None:
    pace = Pace()
    for _ in range(10):
        pace.note(pace.num_bytes, 0.1)
    assert pace.num_bytes == BATCH
    pace.note(100, 5.0)
    assert pace.num_bytes == BATCH, "a heartbeat says nothing about the rate"
    for _ in range(30):
        pace.note(BATCH, 5.0)
    assert pace.num_bytes == 1


def test_a_message_that_is_too_large_is_refused_before_it_is_sealed() -> None:
    with pytest.raises(WireError, match=f"at most {CONTENT_LIMIT}"):
        pack([[bytes(CONTENT_LIMIT)]])


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=6), st.sampled_from([PUSH, PULL]))
def test_requests_and_replies_go_in_turn(contents: list[bytes], number: int) -> None:
    asker, answerer = channel(number)
    for content in contents:
        request = asker.seal(content)
        assert split(request)[:2] == (SESSION, number)
        assert answerer.open(request) == content
        reply = answerer.seal(content[::-1])
        assert asker.open(reply) == content[::-1]
        assert answerer.open(request) is None, "the last request may come again, and is not carried out again"
        assert answerer.last_reply == reply


def test_no_nonce_seals_two_replies() -> None:
    asker, answerer = channel()
    with pytest.raises(WireError, match="nonce"):
        answerer.seal(b"an answer to nothing")
    answerer.open(asker.seal(b"question"))
    answerer.seal(b"answer")
    with pytest.raises(WireError, match="nonce"):
        answerer.seal(b"another")


@given(st.binary(min_size=1, max_size=100), st.data())
def test_bit_flips_and_truncations_are_refused(content: bytes, data: st.DataObject) -> None:
    asker, answerer = channel()
    request = asker.seal(content)
    at = data.draw(st.integers(0, 8 * len(request) - 1))
    flipped = bytearray(request)
    flipped[at // 8] ^= 1 << at % 8
    cut = data.draw(st.integers(0, len(request) - 1))
    for bad in (bytes(flipped), request[:cut], request + b"x"):
        with pytest.raises(WireError):
            answerer.open(bad)
    assert answerer.open(request) == content, "what was refused did no harm"
    reply = bytearray(answerer.seal(content))
    reply[at // 8 % len(reply)] ^= 1 << at % 8
    with pytest.raises(WireError):
        asker.open(bytes(reply))


def test_replays_and_other_orders_are_refused() -> None:
    asker, answerer = channel()
    requests = [asker.seal(b"%d" % index) for index in range(4)]
    with pytest.raises(WireError, match="0 is next"):
        answerer.open(requests[1])
    for request in requests[:3]:
        answerer.open(request)
        answerer.seal(b"")
    for old in requests[:2]:
        with pytest.raises(WireError, match="3 is next"):
            answerer.open(old)
    assert answerer.open(requests[3]) == b"3"


def test_an_envelope_is_good_for_one_session_and_channel() -> None:
    (asker, _), (_, other) = channel(), channel()
    with pytest.raises(WireError, match="altered"):
        other.open(asker.seal(b"x"))
    asker, _ = channel(PULL)
    with pytest.raises(WireError, match="another session or channel"):
        other.open(asker.seal(b"x"))


def test_a_reply_is_good_for_one_request() -> None:
    asker, answerer = channel()
    answerer.open(asker.seal(b"1"))
    old = answerer.seal(b"first")
    assert asker.open(old) == b"first"
    asker.seal(b"2")
    with pytest.raises(WireError):
        asker.open(old)


@given(st.binary(max_size=2000))
def test_xml_rpc_as_the_standard_library_speaks_it(content: bytes) -> None:
    assert marshalling.read_call(marshalling.write_call("barnraise.open", content)) == ("barnraise.open", content)
    theirs = xmlrpc.client.dumps((xmlrpc.client.Binary(content),), "barnraise.open").encode()
    assert len(theirs) <= marshalling.limit(len(content))
    assert marshalling.read_call(theirs) == ("barnraise.open", content)
    (value,), method = xmlrpc.client.loads(marshalling.write_call("barnraise.open", content).decode())
    assert (value.data, method) == (content, "barnraise.open")
    (value,), _ = xmlrpc.client.loads(marshalling.write_response(content).decode())
    assert value.data == content
    assert marshalling.read_response(marshalling.write_response(content)) == content
    response = xmlrpc.client.dumps((xmlrpc.client.Binary(content),), methodresponse=True).encode()
    assert marshalling.read_response(response) == content


@given(st.integers(0, 10**6), st.text(max_size=100))
def test_faults_come_through(code: int, text: str) -> None:
    with pytest.raises(marshalling.CallFault) as caught:
        marshalling.read_response(xmlrpc.client.dumps(xmlrpc.client.Fault(code, "too <much>")).encode())
    assert (caught.value.code, str(caught.value)) == (code, "too <much>")
    document = marshalling.write_fault(code, text)
    with pytest.raises(WireError):  # a Fault, but for letters that XML cannot carry
        marshalling.read_response(document)


CALL = marshalling.write_call("m", b"content").decode()


@pytest.mark.parametrize(
    "document",
    [
        CALL.replace("<methodCall>", '<!DOCTYPE x [<!ENTITY a "b">]><methodCall>'),
        CALL.replace("<methodCall>", '<!DOCTYPE x SYSTEM "file:///etc/passwd"><methodCall>'),
        CALL.replace("m<", "&a;<"),
        CALL.replace("<methodCall>", "<?php x?><methodCall>"),
        CALL.replace("<params>", "<!-- a comment --><params>"),
        CALL.replace("<base64>", '<base64 a="b">'),
        CALL.replace("<base64>", "<array><data><value><base64>"),
        CALL.replace("base64", "string"),
        CALL.replace("<params>", "<params><param><value><base64>AA==</base64></value></param>"),
        CALL.replace("<methodName>m</methodName>", ""),
        CALL.replace("<params>", "text<params>"),
        CALL.replace("Y29u", "Y29"),
        CALL.replace("Y29u", "Y*9u"),
        CALL[:-5],
        CALL + CALL,
        "<a>" * 10_000,
        "",
        "\0",
    ],
)
def test_other_xml_is_refused(document: str) -> None:
    with pytest.raises(WireError):
        marshalling.read_call(document.encode())
    with pytest.raises(WireError):
        marshalling.read_response(document.encode())


@given(st.binary(max_size=400) | st.text(alphabet="<>/&!?[]methodCallNparvubs64 =\"'", max_size=400).map(str.encode))
def test_any_bytes_are_xml_rpc_or_refused(document: bytes) -> None:
    for read in (marshalling.read_call, marshalling.read_response):
        with contextlib.suppress(WireError):
            read(document)


def test_limits_fit_one_another() -> None:
    document = marshalling.write_call("barnraise.exchange", bytes(ENVELOPE_LIMIT))
    assert len(document) <= marshalling.limit(ENVELOPE_LIMIT)
