"""Codecs: golden bytes, payloads that lie, and error feedback."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from barnraise import compression
from barnraise.compression.base import Codec, Encoded
from barnraise.compression.feedback import ErrorFeedback
from barnraise.core.errors import InputError, OptionError, PayloadError, UnknownNameError

torch.set_num_threads(1)
CODECS = [
    ("none", {}),
    ("fp16", {}),
    ("bf16", {}),
    ("int8", {}),
    ("int8", {"block": 8}),
    ("int8", {"rounding": "stochastic"}),
    ("int4", {}),
    ("int4", {"block": 9, "rounding": "stochastic"}),
    ("topk", {"ratio": 0.1}),
    ("topk", {"ratio": 0.1, "half_values": True}),
    ("chunked_topk", {}),
    ("chunked_topk", {"ratio": 0.3, "chunk": 64}),
    ("sparse_loco", {}),
    ("sparse_loco", {"ratio": 1.0, "chunk": 128}),
    ("entropy_coded", {}),
    ("entropy_coded", {"bits": 3.0}),
    ("dct_topk", {}),
    ("low_rank", {"side": 64}),
    ("random_blocks", {"ratio": 0.3}),
]
EVERY = pytest.mark.parametrize(("name", "options"), CODECS)


def vector(size: int, seed: int = 0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def header(tag: bytes, count: int, size: int, exponent: int = 0) -> bytes:
    return struct.pack("<4sIQi", tag, count, size, exponent)


@pytest.mark.parametrize(
    ("name", "options", "values", "expected"),
    [
        ("none", {}, [1.0, -2.5], header(b"f32 ", 0, 2) + struct.pack("<2f", 1.0, -2.5)),
        ("fp16", {}, [1.0, -0.75], header(b"f16 ", 0, 2, -14) + struct.pack("<2e", 16384.0, -12288.0)),
        ("bf16", {}, [1.0, -1.00390625, 3.4e38], header(b"bf16", 0, 3) + struct.pack("<3H", 0x3F80, 0xBF80, 0x7F7F)),
        (
            "int8",
            {"block": 8},
            [127.0, -1.0, 0.5, 1.5, 0, 0, 0, 2.5, -254.0],
            header(b"int8", 8, 9) + struct.pack("<2f9b", 1.0, 2.0, 127, -1, 0, 2, 0, 0, 0, 2, -127),
        ),
        (
            "int4",
            {"block": 8},
            [7.0, -1.0, 0.5, 1.5, 0, 0, 0, 2.5, -14.0],
            header(b"int4", 8, 9) + struct.pack("<2f5B", 1.0, 2.0, 0x7F, 0xA8, 0x88, 0xA8, 0x81),
        ),
        (
            "chunked_topk",  # places 1 and 3 of 64: low 1 and 3 in five bit planes, high 0 and 0 in a bitmap "1100"
            {"ratio": 1 / 32, "chunk": 64},
            [0, -3, 1, 2],
            header(b"ctk ", 2, 4, -13) + struct.pack("<2e6B", -24576, 16384, 0b0011, 0b11, 0b10, 0, 0, 0),
        ),
        (
            "sparse_loco",  # magnitudes 3 and 2, of which the first is negative and large
            {"ratio": 1 / 32, "chunk": 64},
            [0, -3, 1, 2],
            header(b"loco", 2, 4, -13) + struct.pack("<2e8B", 16384, 24576, 0b01, 0b01, 0b0011, 0b11, 0b10, 0, 0, 0),
        ),
        (
            "random_blocks",  # two blocks, the second of which is cut short
            {"ratio": 1.0, "block": 2},
            [1.0, -0.5, 0.25],
            header(b"rblk", 0, 3, -14) + struct.pack("<4e", 16384, -8192, 4096, 0),
        ),
        ("topk", {"ratio": 0.5}, [0, -3, 2, 0], header(b"tk32", 2, 4) + struct.pack("<2i2f", 1, 2, -3, 2)),
        (
            "topk",
            {"ratio": 0.5, "half_values": True},
            [0, -3, 2, 0],
            header(b"tk16", 2, 4, -13) + struct.pack("<2i2e", 1, 2, -24576, 16384),
        ),
    ],
)
def test_golden_bytes(name: str, options: dict[str, object], values: list[float], expected: bytes) -> None:
    codec = compression.create(name, **options)
    encoded = codec.encode(torch.tensor(values, dtype=torch.float32))
    assert encoded.to_bytes() == expected
    assert encoded.num_bytes == len(expected) == codec.max_bytes(len(values))
    assert torch.equal(codec.decode(expected, len(values)), codec.decode(encoded))


@EVERY
@pytest.mark.parametrize("size", [0, 1, 7, 256, 1000, 200_001])
def test_sizes(name: str, options: dict[str, object], size: int) -> None:
    codec = compression.create(name, **options)
    encoded = codec.encode(vector(size))
    assert encoded.num_bytes == codec.max_bytes(size)
    assert b"".join(encoded.frames(1000)) == encoded.to_bytes()
    assert all(frame.nbytes <= 1000 for frame in encoded.frames(1000))
    codec.open(encoded.payload, size)
    assert codec.decode(encoded.payload, size).shape == (size,)


@EVERY
def test_bits_do_not_depend_on_threads(name: str, options: dict[str, object]) -> None:
    codec, x = compression.create(name, **options), vector(300_000)
    results = []
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        encoded = codec.encode(x)
        total = codec.decode_add(encoded, torch.ones_like(x), weight=0.3)
        results.append((encoded.to_bytes(), codec.decode(encoded), total))
    torch.set_num_threads(1)
    for payload, decoded, total in results[1:]:
        assert payload == results[0][0]
        assert torch.equal(decoded, results[0][1])
        assert torch.equal(total, results[0][2])


@EVERY
def test_input_is_left_alone_and_out_is_used(name: str, options: dict[str, object]) -> None:
    codec, x = compression.create(name, **options), vector(1000)
    before, out = x.clone(), torch.full((1000,), 7.0)
    encoded = codec.encode(x)
    assert codec.decode(encoded, out=out) is out
    assert torch.equal(out, codec.decode(encoded))
    assert torch.equal(x, before)


@EVERY
def test_payload_at_an_odd_address(name: str, options: dict[str, object]) -> None:
    codec, x = compression.create(name, **options), vector(1000)
    encoded = codec.encode(x)
    message = memoryview(b"?" + encoded.to_bytes())
    assert torch.equal(codec.decode(message[1:], 1000), codec.decode(encoded))


@EVERY
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_not_finite_is_not_encoded(name: str, options: dict[str, object], bad: float) -> None:
    x = vector(1000)
    x[999] = bad
    with pytest.raises(PayloadError, match="not finite"):
        compression.create(name, **options).encode(x)


@EVERY
def test_header_that_lies(name: str, options: dict[str, object]) -> None:
    codec = compression.create(name, **options)
    payload = codec.encode(vector(1000)).to_bytes()
    lies = [
        b"",
        payload[:19],
        payload[:-1],
        payload + b"\0",
        b"evil" + payload[4:],
        payload[:4] + struct.pack("<I", 1 << 31) + payload[8:],
        payload[:8] + struct.pack("<Q", 1 << 62) + payload[16:],
        payload[:16] + struct.pack("<i", 1 << 20) + payload[20:],
    ]
    for lie in lies:
        with pytest.raises(PayloadError):
            codec.open(lie, 1000, 0)
        if (
            codec.count_tells_version
            and lie[:4] == codec.tag
            and lie[8:20] == payload[8:20]
            and len(lie) == len(payload)
        ):
            continue  # a vector of another version, which only `check` is told
        out = torch.ones(1000)
        with pytest.raises(PayloadError):
            codec.decode_add(lie, out)
        assert bool((out == 1).all())
    with pytest.raises(PayloadError, match="1001"):
        codec.open(payload, 1001)


def lie(codec: Codec, at: int, replacement: bytes) -> str:
    payload = bytearray(codec.encode(torch.arange(1.0, 11.0)).payload)
    payload[at : at + len(replacement)] = replacement
    with pytest.raises(PayloadError) as caught:
        codec.decode(payload, 10)
    return str(caught.value)


def test_values_that_lie() -> None:
    nan, inf = struct.pack("<f", float("nan")), struct.pack("<f", float("-inf"))
    assert "NaN or infinity" in lie(compression.create("none"), 24, nan)
    assert "NaN or infinity" in lie(compression.create("fp16"), 22, struct.pack("<e", float("inf")))
    assert "NaN or infinity" in lie(compression.create("bf16"), 22, struct.pack("<H", 0xFF80))
    assert "exponent 113" in lie(compression.create("fp16"), 16, struct.pack("<i", 113))
    for scale in (nan, inf, struct.pack("<f", -1.0), struct.pack("<f", 3e36)):
        assert "scale" in lie(compression.create("int8"), 20, scale)
    assert "-128" in lie(compression.create("int8"), 24, struct.pack("<b", -128))
    assert "-8" in lie(compression.create("int4"), 24, b"\x07")
    loco = compression.create("sparse_loco", ratio=1 / 32, chunk=64)  # magnitudes 9 and 10 at places 8 and 9
    assert "low <= high" in lie(loco, 20, struct.pack("<ee", 2.0, 1.0))
    assert "low <= high" in lie(loco, 20, struct.pack("<ee", -1.0, 1.0))
    assert "NaN or infinity" in lie(loco, 20, struct.pack("<e", float("nan")))
    assert "marks 3 places, but must mark 2" in lie(loco, 26, b"\x07")
    assert "increasing" in lie(loco, 27, b"\x00\x00\x00\x03\x00")  # twice place 8
    assert "not below 10" in lie(loco, 27, b"\x02\x00\x00\x03\x03")  # places 24 and 25
    low_rank = compression.create("low_rank", side=64)
    assert "unit length" in lie(low_rank, 20, struct.pack("<e", 2.0))
    assert "unit length" in lie(low_rank, 16, struct.pack("<i", 110))
    topk = compression.create("topk", ratio=0.3)  # keeps indices 7, 8, 9
    assert "between 0 and 9" in lie(topk, 20, struct.pack("<i", -1))
    assert "between 0 and 9" in lie(topk, 28, struct.pack("<i", 10))
    assert "increasing" in lie(topk, 20, struct.pack("<i", 8))
    assert "increasing" in lie(topk, 20, struct.pack("<ii", 8, 7))
    assert "NaN or infinity" in lie(topk, 32, nan)


def test_largest_payloads_decode_to_finite_values() -> None:
    largest = torch.finfo(torch.float32).max
    x = torch.tensor([largest, -largest, 1.0, 0.0])
    for name, options in CODECS:
        decoded = compression.create(name, **options).decode(compression.create(name, **options).encode(x))
        assert bool(decoded.isfinite().all())
        if name not in ("dct_topk", "low_rank"):  # which cut what is so large
            assert abs(float(decoded[0]) / largest - 1) < 0.01


def test_bytes_need_a_size() -> None:
    codec = compression.create("none")
    with pytest.raises(InputError, match="needs `size`"):
        codec.decode(codec.encode(vector(3)).to_bytes())


@pytest.mark.parametrize("x", [torch.zeros(2, 2), torch.zeros(2, dtype=torch.float64)])
def test_other_tensors_are_refused(x: Tensor) -> None:
    with pytest.raises(InputError, match="1-D float32"):
        compression.create("none").encode(x)


def test_unfit_out_is_refused() -> None:
    codec = compression.create("none")
    encoded = codec.encode(vector(4))
    for out in (torch.zeros(4, dtype=torch.float64), torch.zeros(8)[::2]):
        with pytest.raises(InputError, match="`out` must be"):
            codec.decode(encoded, out=out)


def test_topk_ties_go_to_the_lowest_index() -> None:
    codec = compression.create("topk", ratio=0.3)
    decoded = codec.decode(codec.encode(torch.tensor([1.0, -2, 2, 2, -2, 1, 1, 0, 1, 1])))
    assert decoded.tolist() == [0, -2, 2, 2, 0, 0, 0, 0, 0, 0]


def test_topk_of_data_that_mislead_the_sample() -> None:
    x = torch.zeros(500_000)
    x[1::2] = torch.arange(1.0, 250_001.0)  # every sampled element is 0 or all of them are the large ones
    x[::7] = 1e6
    codec = compression.create("topk", ratio=0.2)
    kept = codec.decode(codec.encode(x))
    reference = torch.zeros_like(x)
    order = np.lexsort((np.arange(x.numel()), -x.abs().numpy()))[:100_000]
    reference[order.copy()] = x[order.copy()]
    assert torch.equal(kept, reference)


def test_names_and_options() -> None:
    assert compression.names() == [
        "bf16", "chunked_topk", "dct_topk", "entropy_coded", "fp16", "int4", "int8", "low_rank", "none",
        "random_blocks", "sparse_loco", "topk",
    ]  # fmt: skip
    with pytest.raises(UnknownNameError, match="did you mean 'topk'"):
        compression.create("topkk")
    with pytest.raises(OptionError, match="did you mean 'ratio'"):
        compression.create("topk", ration=0.1)
    with pytest.raises(OptionError, match="at most 1"):
        compression.create("topk", ratio=1.5)
    with pytest.raises(OptionError, match="but must be one of 64, 128"):
        compression.create("sparse_loco", chunk=100)


def test_every_codec_has_cases_and_a_tag_of_its_own() -> None:
    assert {name for name, _ in CODECS} == set(compression.names()), "add the codec to CODECS"
    tags = {(compression.create(name, **options).tag, name) for name, options in CODECS}
    assert len({tag for tag, _ in tags}) == len(tags)


def test_published_settings_are_small() -> None:
    size = 4096 * 1000
    assert 8 * compression.create("sparse_loco").max_bytes(size) / size < 0.165  # 12-bit places would make it 0.22
    assert 8 * compression.create("chunked_topk").max_bytes(size) / size < 0.38


def test_chunks_share_alike() -> None:
    """A chunk of small elements keeps as many as one of large elements."""
    x = torch.cat([vector(4096) * 1e-3, vector(4096, seed=1)])
    for name in ("chunked_topk", "sparse_loco"):
        codec = compression.create(name)
        kept = codec.decode(codec.encode(x)) != 0
        assert [int(kept[:4096].sum()), int(kept[4096:].sum())] == [64, 64]


def test_untouched_chunks_decode_to_zero() -> None:
    x = torch.cat([torch.zeros(4096), vector(4096)])
    codec = compression.create("sparse_loco")
    assert not codec.decode(codec.encode(x))[:4096].any()


def test_stochastic_rounding_is_right_in_the_mean() -> None:
    x = torch.full((100_000,), 0.3)
    x[::256] = 7.0  # the scale is 1 for int4
    codec = compression.create("int4", rounding="stochastic")
    decoded = codec.decode(codec.encode(x))[x == 0.3]
    assert set(decoded.tolist()) == {0.0, 1.0}
    assert float(decoded.mean()) == pytest.approx(0.3, abs=4 * (0.3 * 0.7 / decoded.numel()) ** 0.5 + 2**-9)


@pytest.mark.parametrize(("name", "levels"), [("int8", 127), ("int4", 7)])
@pytest.mark.parametrize("fraction", [0.0004, 0.0019, 0.9996])
def test_stochastic_rounding_is_right_in_the_mean_for_any_fraction(name: str, levels: int, fraction: float) -> None:
    codec = compression.create(name, rounding="stochastic")
    total, rounds, size = 0.0, 40, 65536
    for round_ in range(rounds):
        x = torch.full((size,), fraction)
        x[::256] = levels * (1 + 1e-6 * round_)  # the scale is 1
        total += float(codec.decode(codec.encode(x))[x == x[1]].sum(dtype=torch.float64))
    count = rounds * size * 255 / 256
    spread = 2 * (min(fraction, 1 - fraction) / count) ** 0.5  # elements of one block are not quite independent
    assert total / count == pytest.approx(fraction, abs=4 * spread)


def test_stochastic_rounding_rolls_other_dice_for_any_other_vector() -> None:
    """A part that stays as it is, as a frozen one does, must not make the rest err alike in each round."""
    codec = compression.create("int4", rounding="stochastic")
    head, tail = torch.zeros(1 << 16), vector(1 << 17)
    errors = []
    for round_ in range(64):
        x = torch.cat([head, tail * (1 + 1e-3 * round_)])
        errors.append((codec.decode(codec.encode(x)) - x)[1 << 16 :])
    once, mean = float(errors[0].std()), float(torch.stack(errors).mean(0).std())
    assert mean == pytest.approx(once / 8, rel=0.1)
    assert codec.encode(x).to_bytes() == codec.encode(x).to_bytes()


def test_random_blocks_take_turns_and_are_the_same_for_all() -> None:
    codec = compression.create("random_blocks", ratio=0.1, block=8)
    x, y, size = vector(800), vector(800, seed=1), 800
    for lap in range(3):
        seen = torch.zeros(size, dtype=torch.bool)
        for version in range(lap * 10, lap * 10 + 10):
            mine, theirs = codec.decode(codec.encode(x, version)), codec.decode(codec.encode(y, version))
            assert torch.equal(mine != 0, theirs != 0)
            seen |= mine != 0
        assert bool(seen.all())
    with pytest.raises(PayloadError, match="count=4"):
        codec.open(codec.encode(x, 3), size, 4)
    codec.open(codec.encode(x, 3), size, 3)


def test_low_rank_of_what_is_low_rank() -> None:
    x = (vector(64 * 4).view(64, 4) @ vector(64 * 4, seed=1).view(4, 64)).reshape(-1)
    codec = compression.create("low_rank", rank=4, side=64)
    assert float((codec.decode(codec.encode(x)) - x).norm() / x.norm()) < 2e-3


def test_cosine_coefficients_of_what_is_smooth() -> None:
    x = torch.cos((torch.arange(4096.0) % 64 + 0.5) * (torch.pi / 64) * 3) + torch.cos(torch.arange(4096.0) // 64 / 9)
    codec = compression.create("dct_topk")
    assert float((codec.decode(codec.encode(x)) - x).norm() / x.norm()) < 0.02


def test_feedback_keeps_what_was_left_out() -> None:
    feedback = ErrorFeedback(compression.create("topk", ratio=0.25))
    assert feedback.residual is None
    assert feedback.residual_norm == 0.0
    assert feedback.flush() is None
    first = feedback.codec.decode(feedback.compress(torch.tensor([4.0, 3.0, 0.0, 0.0])))
    assert first.tolist() == [4, 0, 0, 0]
    assert feedback.residual_norm == 3.0
    second = feedback.compress(torch.tensor([2.0, 0.0, 1.0, 0.0]))
    assert feedback.codec.decode(second).tolist() == [0, 3, 0, 0]
    feedback.give_back(second)
    assert feedback.residual is not None
    assert feedback.residual.tolist() == [2, 3, 1, 0]
    flushed = feedback.flush(compression.create("none"))
    assert flushed is not None
    assert compression.create("none").decode(flushed).tolist() == [2, 3, 1, 0]
    assert feedback.residual_norm == 0.0
    feedback.reset()
    assert feedback.residual is None


def test_feedback_decays() -> None:
    feedback = ErrorFeedback(compression.create("topk", ratio=0.5), decay=0.5)
    feedback.compress(torch.tensor([4.0, 2.0]))
    feedback.compress(torch.tensor([4.0, 0.0]))
    assert feedback.residual is not None
    assert feedback.residual.tolist() == [0, 1]


def test_feedback_survives_bad_input() -> None:
    feedback = ErrorFeedback(compression.create("topk", ratio=0.5))
    encoded = feedback.compress(torch.tensor([4.0, 2.0]))
    for bad, error in ((torch.tensor([1.0, float("nan")]), PayloadError), (torch.zeros(3), InputError)):
        with pytest.raises(error):
            feedback.compress(bad)
    with pytest.raises(PayloadError):
        feedback.give_back(compression.create("none").encode(torch.zeros(2)))
    assert feedback.residual is not None
    assert feedback.residual.tolist() == [0, 2]
    feedback.reset()
    feedback.give_back(encoded)
    assert feedback.residual is not None
    assert feedback.residual.tolist() == [4, 0]
    with pytest.raises(InputError, match="between 0 and 1"):
        ErrorFeedback(feedback.codec, decay=1.5)


def test_feedback_makes_top_one_descend() -> None:
    """Two workers whose largest gradients cancel: top-1 alone sends only those, forever."""
    target = torch.cat([torch.zeros(1), torch.ones(9)])
    pull = torch.cat([torch.full((1,), 5.0), torch.zeros(9)])
    codec = compression.create("topk", ratio=0.1)

    def distance(encode: list[Callable[[Tensor], Encoded]]) -> float:
        x = torch.zeros(10)
        for _ in range(600):
            sent = [encode[0](x - target + pull), encode[1](x - target - pull)]
            for encoded in sent:
                codec.decode_add(encoded, x, weight=-0.01)
        return float((x - target).norm() / target.norm())

    assert distance([codec.encode, codec.encode]) == 1.0
    assert distance([ErrorFeedback(codec).compress, ErrorFeedback(codec).compress]) < 0.1
