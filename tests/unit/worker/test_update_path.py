"""From local parameters to payloads: delta, clip, error feedback, and what a leaving worker flushes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from barnraise import aggregation, compression, training
from barnraise.controller.state.actions import Held, Slot
from barnraise.controller.tensors.parameter_server import ParameterServer
from barnraise.core.errors import PayloadError
from barnraise.core.types import Contribution, ParameterRange
from barnraise.worker.update_path import UpdatePath

SIZE = 256


def path(**options: object) -> UpdatePath:
    given = {"error_feedback": True, "decay": 1.0, "update_clip": None} | options
    return UpdatePath(compression.create("topk", ratio=0.05), **given)  # type: ignore[arg-type]


def test_nothing_is_lost_over_rounds_with_error_feedback() -> None:
    torch.manual_seed(0)
    sender, sent, meant = path(), torch.zeros(SIZE), torch.zeros(SIZE)
    for _ in range(5):
        start, end = torch.randn(SIZE), torch.randn(SIZE)
        meant += start - end
        sent += sender.codec.decode(sender.send(start.clone(), end).encoded)
    assert sender.feedback is not None
    torch.testing.assert_close(sent + sender.feedback.residual, meant, rtol=1e-4, atol=1e-4)


def test_a_worker_trains_on_with_what_it_keeps() -> None:
    """With one worker and keep 1, training continues as if nothing had been left out."""
    torch.manual_seed(0)
    sender, published, reached = path(keep=1.0), torch.randn(SIZE), torch.zeros(SIZE)
    for round_number in range(5):
        start = published.clone()
        residual, share = sender.kept
        if residual is not None:
            start -= share * residual
        if round_number:
            torch.testing.assert_close(start, reached, rtol=1e-4, atol=1e-4)
        reached = start + torch.randn(SIZE)
        payload = sender.send(start, reached)
        published -= sender.codec.decode(payload.encoded)
    assert float((published - reached).norm()) > 1.0  # most of it is not sent yet


def test_a_refused_update_is_sent_again_with_the_next() -> None:
    sender = path()
    delta = torch.arange(SIZE, dtype=torch.float32)
    payload = sender.send(delta.clone(), torch.zeros(SIZE))
    sender.settle(payload, accepted=False)
    assert sender.feedback is not None
    torch.testing.assert_close(sender.feedback.residual, delta)


def test_clipping_bounds_the_norm_and_keeps_the_direction() -> None:
    sender = UpdatePath(compression.create("none"), error_feedback=True, decay=1.0, update_clip=2.0)
    sent = sender.codec.decode(sender.send(torch.full((SIZE,), 3.0), torch.zeros(SIZE)).encoded)
    assert float(sent.norm()) == pytest.approx(2.0, rel=1e-5)
    assert float(sent.std()) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    "codec",
    [("topk", {"ratio": 0.05}), ("int8", {}), ("int4", {}), ("sparse_loco", {}), ("entropy_coded", {})],
    ids=str,
)
def test_a_sent_update_is_clipped_with_its_residual(codec: tuple[str, dict[str, Any]]) -> None:
    """Error feedback brings along what was left out of many updates: the limit is for the bytes."""
    torch.manual_seed(0)
    sender = UpdatePath(compression.create(codec[0], **codec[1]), error_feedback=True, decay=1.0, update_clip=0.5)
    norms = []
    for _ in range(20):
        payload = sender.send(torch.randn(SIZE) * 0.1, torch.zeros(SIZE))
        norms.append(sender.codec.open(payload.encoded, SIZE).norm())
    assert max(norms) <= 0.5
    assert max(norms) > 0.45, "it is clipped, not thrown away"
    assert sender.feedback is not None
    assert sender.feedback.residual_norm < 100.0, "what is cut off does not come again"


def test_an_update_above_every_scale_is_sent_as_zeros() -> None:
    sender = UpdatePath(compression.create("int8"), error_feedback=False, decay=1.0, update_clip=1e-45)
    payload = sender.send(torch.ones(SIZE), torch.zeros(SIZE))
    assert sender.codec.open(payload.encoded, SIZE).norm() <= 1e-45


def test_a_leaving_worker_flushes_its_residual_and_the_controller_reads_it() -> None:
    torch.manual_seed(1)
    last = compression.create("int8")
    sender = path(last=last)
    first, second = torch.randn(SIZE), torch.randn(SIZE)
    usual = sender.send(first.clone(), torch.zeros(SIZE))
    final = sender.send(second.clone(), torch.zeros(SIZE), leaving=True)
    server = ParameterServer(
        torch.zeros(SIZE), 0, rule=aggregation.create("mean"), codecs=[sender.codec, last],
        downlink=compression.create("none"), outer=training.create("sgd"),
    )  # fmt: skip
    payloads = {1: usual.data, 2: final.data}
    span = ParameterRange(0, SIZE)
    for version, payload in ((1, usual), (2, final)):
        codec = server.codecs.index(payload.codec)
        assert codec == version - 1
        offered = Contribution(
            assignment=version,
            base=0,
            parameters=span,
            payload=payload.blob,
            steps=1,
            loss=1.0,
            seconds=1.0,
            codec=codec,
        )
        norm, reason = server.inspect(payload.data, offered)
        assert not reason
        assert norm > 0
        server.aggregate(version, [Slot("n", span, (Held(version, 1.0, codec),))], payloads.__getitem__)
    error = float((server.parameters + first + second).norm() / (first + second).norm())
    assert error < 0.02  # 8 bits, where top-k alone would have left out most of it


def test_an_update_is_scaled_to_the_reference_steps() -> None:
    sender = UpdatePath(compression.create("none"), error_feedback=True, decay=1.0, update_clip=None)
    sent = sender.codec.decode(sender.send(torch.full((SIZE,), 3.0), torch.zeros(SIZE), scale=0.5).encoded)
    assert sent.tolist() == [1.5] * SIZE


def test_the_residual_is_sent_at_the_end() -> None:
    torch.manual_seed(0)
    last = compression.create("int4")
    sender = path(last=last, keep=1.0)
    sent = sender.codec.decode(sender.send(torch.randn(SIZE), torch.zeros(SIZE)).encoded)
    assert sender.feedback is not None
    left = sender.feedback.residual
    assert left is not None
    wanted = left.clone()
    payload = sender.flush(SIZE)
    assert float((last.decode(payload.encoded) - wanted).norm()) < 0.15 * float(wanted.norm())
    assert float(sent.norm()) > 0.0
    sender.settle(payload, accepted=False)
    torch.testing.assert_close(sender.feedback.residual, wanted)


def test_a_worker_without_a_residual_sends_zeros() -> None:
    sender = UpdatePath(compression.create("none"), error_feedback=True, decay=1.0, update_clip=None)
    assert not sender.codec.decode(sender.flush(SIZE).encoded).any()


def test_fragments_take_turns_and_nothing_is_lost() -> None:
    """With one worker and a lossless codec, exchanging a third at a time trains exactly as exchanging all."""
    torch.manual_seed(0)
    spans = [slice(0, 100), slice(100, 180), slice(180, SIZE)]
    sender = UpdatePath(
        compression.create("none"), error_feedback=True, decay=1.0, update_clip=None, keep=1.0, fragments=True
    )
    published, reached = torch.randn(SIZE), torch.zeros(SIZE)
    for turn in range(7):
        start, span = published.clone(), spans[turn % 3]
        residual, share = sender.kept
        if residual is not None:
            start -= share * residual
        if turn:
            torch.testing.assert_close(start, reached, rtol=1e-5, atol=1e-5)
        reached = start + torch.randn(SIZE)
        payload = sender.send(start, reached, covered=(span.start, span.stop))
        assert payload.encoded.size == span.stop - span.start
        published[span] -= payload.codec.decode(payload.encoded)
        torch.testing.assert_close(published[span], reached[span], rtol=1e-5, atol=1e-5)
    published -= sender.codec.decode(sender.flush(SIZE).encoded)
    torch.testing.assert_close(published, reached, rtol=1e-5, atol=1e-5)


def test_several_ranges_are_sent_in_one_piece_and_the_rest_stays_in_the_residual() -> None:
    sender = UpdatePath(
        compression.create("none"), error_feedback=True, decay=1.0, update_clip=None, keep=1.0, fragments=True
    )
    delta, covered = torch.arange(1.0, SIZE + 1), (0, 7, 40, 80, 99, 101)
    payload = sender.send(delta.clone(), torch.zeros(SIZE), covered=covered)
    inside = torch.cat([delta[0:7], delta[40:80], delta[99:101]])
    torch.testing.assert_close(payload.codec.decode(payload.encoded), inside)
    assert sender.feedback is not None
    assert sender.feedback.residual is not None
    left = delta.clone()
    for start, stop in ((0, 7), (40, 80), (99, 101)):
        left[start:stop] = 0
    torch.testing.assert_close(sender.feedback.residual, left)
    assert payload.opened(SIZE)[0] == covered
    sender.settle(payload, accepted=False)
    torch.testing.assert_close(sender.feedback.residual, delta)


def test_a_refused_fragment_goes_back_to_its_place() -> None:
    sender = UpdatePath(
        compression.create("none"), error_feedback=True, decay=1.0, update_clip=None, keep=1.0, fragments=True
    )
    delta = torch.arange(SIZE, dtype=torch.float32)
    payload = sender.send(delta.clone(), torch.zeros(SIZE), covered=(40, 80))
    assert sender.feedback is not None
    assert sender.feedback.residual is not None
    assert not sender.feedback.residual[40:80].any()
    sender.settle(payload, accepted=False)
    torch.testing.assert_close(sender.feedback.residual, delta)


@pytest.mark.parametrize("place", [5, 150])
def test_an_update_that_is_not_finite_anywhere_is_refused_and_the_residual_stays(place: int) -> None:
    sender = path(fragments=True)
    sender.send(torch.randn(SIZE), torch.randn(SIZE))
    assert sender.feedback is not None
    assert sender.feedback.residual is not None
    before, reached = sender.feedback.residual.clone(), torch.randn(SIZE)
    reached[place] = torch.nan
    with pytest.raises(PayloadError, match="not finite"):
        sender.send(torch.randn(SIZE), reached, covered=(0, 100))
    assert torch.equal(sender.feedback.residual, before)
