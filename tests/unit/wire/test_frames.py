from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from barnraise.core.errors import WireError
from barnraise.core.types import Blob, Contribution, NodeProfile, ParameterRange, RowRange, Update
from barnraise.wire import decode_from_controller, decode_from_worker, encode
from barnraise.wire import messages as m
from barnraise.wire.frames import decoder_for_strangers

from ...tasks import train

DIGEST = "ab" * 32


def header(**fields: Any) -> bytes:
    return msgspec.msgpack.encode(fields)


def offer(**fields: Any) -> m.Offer:
    values = {"assignment": 1, "base": 0, "parameters": ParameterRange(0, 9), "payload": Blob(DIGEST, 9), "steps": 1}
    return m.Offer(Contribution(**values | {"loss": 1.0, "seconds": 1.0, "codec": 0} | fields))


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([], "0 frames"),
        ([header(t="Next", have=1), b"", b""], "3 frames"),
        ([header(t="PayloadChunk", assignment=1, offset=0)], "lacks its raw frame"),
        ([header(t="Next", have=1), b"raw"], "carries none"),
        ([header(t="PayloadChunk", assignment=1, offset=0), b""], "empty"),
        ([header(t="PayloadChunk", assignment=1, offset=0), bytes(m.FRAME_LIMIT + 1)], str(m.FRAME_LIMIT)),
        ([bytes(m.WORKER_HEADER_LIMIT + 1)], str(m.WORKER_HEADER_LIMIT)),
        ([b""], "truncated"),
        ([b"\x91" * 10_000], "array"),
        ([b"\x82\xa1t\xa4Next\xa1x" + b"\x91" * 10_000], "recursion"),
        ([header(t="Ack", assignment=1, accepted=True)], "Invalid value 'Ack'"),
        ([header(t="Next", have=2**60)], "9007199254740992"),
        ([header(t="Next", have=-2)], "-1"),
        ([header(t="Next", have=1.5)], "float"),
        ([header(t="Heartbeat", sent=float("nan"))], "float"),
        ([header(t="Heartbeat", sent=float("inf"))], "1000000000000.0"),
        ([header(t="Leave", reason="x" * 2001)], "2000"),
        ([header(t="Leave", reason=b"\xff")], "bytes"),
        ([b"\x82\xa1t\xa5Leave\xa6reason\xa1\xff"], "utf-8"),
        ([header(t="Leave", reason="") + b"\x00"], "trailing"),
        ([header(t="Fetch", digest=DIGEST.upper(), offset=0, num_bytes=1)], "digest"),
        ([header(t="Fetch", digest=DIGEST, offset=0, num_bytes=m.FRAME_LIMIT + 1)], str(m.FRAME_LIMIT)),
    ],
)
def test_refused(frames: list[bytes], reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode_from_worker(frames)


def test_raw_frame_is_a_view_of_the_received_bytes() -> None:
    data = bytearray(b"payload")
    message, raw = decode_from_worker(encode(m.PayloadChunk(1, 0), data))
    assert message == m.PayloadChunk(1, 0)
    assert raw is not None
    assert raw.obj is data


def test_sizes_are_bytes_not_items() -> None:
    words = memoryview(bytes(m.FRAME_LIMIT + 8)).cast("Q")
    with pytest.raises(WireError, match=str(m.FRAME_LIMIT + 8)):
        decode_from_worker([header(t="PayloadChunk", assignment=1, offset=0), words])


@pytest.mark.parametrize(
    ("message", "raw"),
    [
        (m.PayloadChunk(1, 0), None),
        (m.Identify(), b"x"),
        (m.Chunk(DIGEST, 0), b""),
        (m.Chunk(DIGEST, 0), bytes(m.FRAME_LIMIT + 1)),
    ],
)
def test_an_invalid_message_is_not_sent(message: m.Message, raw: bytes | None) -> None:
    with pytest.raises(WireError):
        encode(message, raw)


def test_a_header_over_the_limit_is_not_sent() -> None:
    with pytest.raises(WireError, match=str(m.HEADER_LIMIT)):
        encode(m.Stop("x" * m.HEADER_LIMIT))


def test_the_largest_messages_fit() -> None:
    big = 2**53
    updates = (Update("snapshot", big, Blob(DIGEST, big), DIGEST),) * 4096
    rows = (RowRange(big, big, big),) * 256
    assert len(encode(m.Assign(train(updates=updates, rows=rows)))[0]) <= m.HEADER_LIMIT
    ids = (big,) * 64
    hello = m.Hello(big, big, big, NodeProfile(device="\U0001f600" * 120), -1, ids, ids)
    for message in (hello, m.Leave("\U0001f600" * 2000)):
        assert decode_from_worker(encode(message))[0] == message


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_diverged_loss_reaches_admission(loss: float) -> None:
    message, _ = decode_from_worker(encode(offer(loss=loss)))
    assert isinstance(message, m.Offer)
    assert repr(message.result.loss) == repr(loss)


@pytest.mark.parametrize("field", ["learning_rate", "share"])
@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_task_is_finite(field: str, value: float) -> None:
    with pytest.raises(WireError, match=field):
        decode_from_controller(encode(m.Assign(train(**{field: value}))))


@pytest.mark.parametrize("decode", [decode_from_worker, decoder_for_strangers(m.Enrol)])
@pytest.mark.parametrize("name", ["Enrol", "Hello"])
def test_another_protocol_version_says_so(decode: Callable[[list[bytes]], Any], name: str) -> None:
    with pytest.raises(WireError, match=f"protocol version 99 is not spoken here, only {m.PROTOCOL_VERSION}"):
        decode([header(t=name, protocol=99, something="new")])


def test_unknown_fields_are_skipped() -> None:
    assert decode_from_worker([header(t="Next", have=1, later={"a": [1, 2]})])[0] == m.RequestTask(1)


@pytest.mark.parametrize(
    ("bomb", "understood"),
    [
        (b"\x82\xa1t\xa3Who\xa1x\xdd\x00\x0f\x00\x00" + b"\x80" * 0xF0000, True),  # a million empty maps, to be skipped
        (header(t="Stop", reason="", final=True, x={str(i): 0 for i in range(100_000)}), True),
        (b"\x82\xa1t\xa7Welcome\xa6forget\xdd\xff\xff\xff\xff", False),  # four billion items announced
        (b"\x82\xa1t\xa6Assign\xa4task\xdf\xff\xff\xff\xff", False),
    ],
)
def test_nested_bombs_cost_no_memory(bomb: bytes, understood: bool) -> None:
    """A header of empty maps once cost 70 times its size: lists and maps are bounded, unknown ones not built."""
    tracemalloc.start()
    try:
        if understood:
            decode_from_controller([bomb])
        else:
            with pytest.raises(WireError):
                decode_from_controller([bomb])
        assert tracemalloc.get_traced_memory()[1] < len(bomb) + 100_000
    finally:
        tracemalloc.stop()


def test_a_malformed_frame_is_quoted_in_one_short_line() -> None:
    with pytest.raises(WireError) as caught:
        decode_from_worker([header(t="\x1b[2J\n" + "x" * 10_000)])
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300
