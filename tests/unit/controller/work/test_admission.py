"""The admission of results to the buffer."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from barnraise.controller.state.state import Work
from barnraise.controller.work import admission
from barnraise.core.types import Blob, Contribution, ParameterRange, Taken, Transcript
from barnraise.ledger import Terms
from barnraise.training.reach import Reach

from ....state_machine.engine import digest, engine_settings, told

WORK = Work(
    0.0, assignment=3, node="a", kind="train", base=7, tokens=12, local_steps=4, rows=(), cursor=0,
    terms=Terms(max_staleness=2, learning_rate=0.0, parameters=ParameterRange(0, 100)),
)  # fmt: skip


def at_rate(work: Work, learning_rate: float) -> Work:
    return msgspec.structs.replace(work, terms=msgspec.structs.replace(work.terms, learning_rate=learning_rate))


def offer(**changes: Any) -> Contribution:
    usual: dict[str, Any] = {"assignment": 3, "base": 7, "steps": 4, "loss": 1.0, "seconds": 1.0}
    update = {"parameters": WORK.terms.parameters, "payload": Blob(digest(1), 500), "codec": 0}
    return Contribution(**(usual | update | changes))


@pytest.mark.parametrize(
    ("changes", "version", "reason"),
    [
        ({}, 7, ""),
        ({}, 9, ""),
        ({"steps": 1}, 9, ""),  # cut short
        ({}, 10, "stale: 3 versions behind, at most 2"),
        ({"base": 6}, 7, "base is version 6, but the task started from 7"),
        ({"base": 2**53}, 7, "base is version"),
        ({"parameters": ParameterRange(0, 99)}, 7, "were assigned"),
        ({"payload": Blob(digest(1), 501)}, 7, "payload of 501 bytes, but the codec needs at most 500"),
        ({"steps": 5}, 7, "claims 5 steps, but 4"),
        ({"loss": math.nan}, 7, "training loss is nan"),
        ({"loss": math.inf}, 7, "training loss is inf"),
        ({"loss": 1e308}, 7, "training loss is 1e+308"),
        ({"loss": -1.0}, 7, "training loss is -1"),
        ({"steps": 0}, 7, "claims no step"),
        ({"payload": Blob(digest(1), 0)}, 7, "payload of 0 bytes"),
        ({"codec": 1}, 7, "is written in codec 1, but codec 0 was assigned"),  # no node has a residual here
        ({"codec": 2**53}, 7, "is written in codec 9007199254740992, but codec 0 was assigned"),
    ],
)
def test_an_offer_must_be_the_answer_to_its_task(changes: dict[str, Any], version: int, reason: str) -> None:
    found = admission.refuse_result(offer(**changes), WORK, version)
    found = found or admission.refuse_update(offer(**changes), WORK, 0, engine_settings().payloads)
    assert found.startswith(reason) or reason in found
    innocent = not reason or reason.startswith(("stale", "training loss"))
    assert isinstance(found, admission.Offence) != innocent
    assert bool(found) == bool(reason)


@pytest.mark.parametrize(
    ("kind", "codec", "num_bytes", "reason"),
    [
        ("train", 1, 300, ""),
        ("train", 1, 301, "payload of 301 bytes, but the codec needs at most 300"),
        ("train", 0, 200, "is written in codec 0, but codec 1 was assigned"),
        ("train", 2, 200, "is written in codec 2, but codec 1 was assigned"),
        ("train", 3, 900, ""),  # its node leaves
        ("train", 3, 901, "payload of 901 bytes, but the codec needs at most 900"),
        ("train", 4, 200, "is written in codec 4, but codec 1 was assigned"),
        ("flush", 3, 900, ""),
        ("flush", 1, 300, "is written in codec 1, but codec 3 was assigned"),
    ],
)
def test_an_offer_is_in_the_codec_of_its_rung_or_in_that_of_residuals(
    kind: str, codec: int, num_bytes: int, reason: str
) -> None:
    payloads = engine_settings(rungs=(200, 300, 400), last=900).payloads
    work = msgspec.structs.replace(WORK, kind=kind, terms=msgspec.structs.replace(WORK.terms, rung=1))
    offered = offer(codec=codec, payload=Blob(digest(1), num_bytes))
    assigned = 1 if kind == "train" else payloads.last_codec
    assert admission.refuse_update(offered, work, assigned, payloads) == reason


@pytest.mark.parametrize(
    ("norm", "reason", "limit", "expected"),
    [
        (1.0, "", None, ""),
        (10.0, "", 10.0, ""),
        (10.1, "", 10.0, "norm 10.1 is above trust.max_update_norm 10"),
        (math.nan, "", None, "norm is nan: the update holds NaN or infinite values"),
        (math.inf, "", None, "norm is inf: the update holds NaN or infinite values"),
        (0.0, "codec 'topk': too short", None, "codec 'topk': too short"),
    ],
)
def test_an_update_must_be_sane(norm: float, reason: str, limit: float | None, expected: str) -> None:
    assert admission.refuse_inspection(norm, reason, engine_settings(max_norm=limit).payloads) == expected


def test_the_default_norm_limit_refuses_only_impossible_updates() -> None:
    payloads = engine_settings().payloads  # a model of 100 parameters
    assert admission.refuse_inspection(1000.0, "", payloads) == ""
    assert admission.refuse_inspection(1001.0, "", payloads) == "norm 1001 is above 1000, which no model could follow"


def test_an_update_is_shortened_to_what_its_task_can_make() -> None:
    work = at_rate(WORK, 0.025)  # 4 steps: a travel of 0.1
    settings = engine_settings(reach=Reach(10.0, besides=1.0))
    assert [admission.scale(norm, work, settings) for norm in (0.0, 1e-9, 2.0)] == [1.0, 1.0, 1.0]
    assert admission.scale(8.0, work, settings) == 0.25
    longer = msgspec.structs.replace(work, local_steps=8)
    assert admission.scale(3.0, longer, settings) == 1.0
    assert admission.scale(1e9, work, engine_settings()) == 1.0, "nothing is known of this optimizer's steps"
    limited = engine_settings(reach=Reach(10.0, besides=1.0), max_norm=50.0)
    assert admission.scale(8.0, work, limited) == 1.0, "the run file sets the limit"


def test_an_update_may_bring_earlier_work_along_where_error_feedback_holds_it_back() -> None:
    settings = engine_settings(reach=Reach(10.0, tasks=3.0), learning_rate=0.05, local_steps=2)
    assert admission.scale(3.0, at_rate(WORK, 1e-9), settings) == 1.0, "the rate was higher before"
    residual = msgspec.structs.replace(at_rate(WORK, 0.0), local_steps=0)
    assert admission.scale(6.0, residual, settings) == pytest.approx(0.5)


def test_updates_that_are_scaled_to_equal_steps_are_as_long_as_those_steps_make_them() -> None:
    settings = engine_settings(reach=Reach(10.0), worker=told(uplink={"normalize_steps": 8}))
    assert admission.scale(2.0, at_rate(WORK, 0.025), settings) == 1.0
    assert admission.scale(4.0, at_rate(WORK, 0.025), settings) == 0.5


@pytest.mark.parametrize(
    ("transcript", "reason"),
    [
        (Transcript(7, 4), ""),
        (Transcript(8, 4, True, (Taken(0, 9), Taken(4, 10))), ""),
        (Transcript(7, 3), ""),
        (Transcript(7, 2), "tells 2 batches, but took 3 steps of 4"),
        (Transcript(7, 5), "tells 5 batches, but took 3 steps of 4"),
        (None, "tells no transcript"),
        (Transcript(6, 4), "tells versions"),
        (Transcript(11, 4), "tells versions"),
        (Transcript(7, 4, taken=(Taken(5, 8),)), "tells versions"),
        (Transcript(7, 4, taken=(Taken(2, 8), Taken(1, 9))), "tells versions"),
        (Transcript(7, 4, taken=(Taken(1, 8), Taken(2, 8))), "tells versions"),
    ],
)
def test_a_transcript_is_one_that_the_task_can_have_had(transcript: Transcript | None, reason: str) -> None:
    stateless = msgspec.structs.replace(WORK, terms=msgspec.structs.replace(WORK.terms, pace=0.5))
    found = admission.refuse_transcript(offer(steps=3, transcript=transcript), stateless, 10)
    assert bool(found) == bool(reason)
    assert found.startswith(reason)
    assert bool(admission.refuse_transcript(offer(transcript=transcript), WORK, 10)) == (transcript is not None)


def test_version_0_has_not_moved() -> None:
    """No node could do such a task again, so an audit could never judge it."""
    first = msgspec.structs.replace(WORK, base=0, terms=msgspec.structs.replace(WORK.terms, pace=0.0))
    assert admission.refuse_transcript(offer(base=0, transcript=Transcript(0, 4)), first, 10) == ""
    assert "nothing led to" in admission.refuse_transcript(offer(base=0, transcript=Transcript(0, 4, True)), first, 10)
