"""The bytes of every message, as they stand in `golden.json`: two barnraise versions of one protocol version agree.

BARNRAISE_REWRITE_GOLDEN=1 writes the file again, and asks for a new PROTOCOL_VERSION where one is needed: known bytes
change, or worker and controller have a new message. The messages of a new role need none, since only a controller that
knows the role makes invites for it; nor does a new kind of task or result, since a worker gets only tasks that
it knows.
"""

from __future__ import annotations

import functools
import json
import operator
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from barnraise.controller.shell.role_handlers import decode_incoming
from barnraise.core.sites import OwnRows, Releases, SiteTerms
from barnraise.core.types import (
    SKETCH_BYTES,
    AnyResult,
    AnyTask,
    Audit,
    Batches,
    Blob,
    Confirm,
    Confirmed,
    Contribution,
    Endorse,
    Endorsed,
    Evaluate,
    Finding,
    Flush,
    LinkReport,
    Masked,
    News,
    NodeProfile,
    ParameterRange,
    RowRange,
    Seat,
    Sketched,
    Taken,
    Train,
    Transcript,
    Unmask,
    Unmasked,
    Update,
    Vet,
    Vetted,
    name_of,
)
from barnraise.trust.roles import ROLES
from barnraise.wire import decode_from_worker, encode
from barnraise.wire import following as f
from barnraise.wire import messages as m
from barnraise.wire import observing as o
from barnraise.wire.frames import decoder
from barnraise.wire.private import Encrypted

GOLDEN = Path(__file__).with_name("golden.json")
REWRITE = "write the golden bytes: BARNRAISE_REWRITE_GOLDEN=1 .venv/bin/pytest tests/protocol"
A, B = "ab" * 32, "0123456789abcdef" * 4

TRANSCRIPT = Transcript(41, 20, taken=(Taken(10, 42),))
TRAIN = Train(
    id=8,
    base=42,
    news=News((Update("snapshot", 40, Blob(A, 4020), B), Update("delta", 41, Blob(B, 50), A)), merged=6, share=0.5),
    batches=Batches((RowRange(0, 16, 32), RowRange(1, 0, 4)), 8, seed=17),
    tokens=2560,
    local_steps=20,
    learning_rate=0.001,
    rung=1,
    parameters=ParameterRange(0, 1000),
    max_staleness=166,
)

SEAT = Seat("trustee-1", A, B)
ABOUT_MASKS: dict[str, Any] = {
    "members": b"list",
    "signers": (A,),
    "shares": (b"share",),
    "committee": (SEAT,),
    "endorsements": ("",),
    "seeds": (0, 2),
}
MESSAGES: list[tuple[m.Message, bytes | None]] = [
    (m.Enrol(m.PROTOCOL_VERSION, "00ff", "node-1.lab_2", A, B, signer=A, endorsement=""), None),
    (
        m.Hello(
            m.PROTOCOL_VERSION,
            2**53,
            3,
            NodeProfile(1.5, 2**34, 8, "cuda:0", 1e6, 2e7, 0.02, 2**33),
            -1,
            (1, 2),
            (3,),
            ("train",),
            m.Term(3, A),
            own=OwnRows(1300, 60, A, B, "mean"),
        ),
        None,
    ),
    (m.Heartbeat(12.25), None),
    (m.RequestTask(41, LinkReport(0.05, 125000.0, 1.25e6)), None),
    (m.Subscribe(42), None),
    (m.Decline(8, "this replica is at version 43 already"), None),
    (
        m.Offer(
            Contribution(
                assignment=7,
                base=41,
                parameters=ParameterRange(0, 1000),
                payload=Blob(A, 4020),
                steps=20,
                loss=2.5,
                seconds=3.75,
                codec=1,
            )
        ),
        None,
    ),
    (m.Offer(Finding(assignment=10, base=41, steps=2, loss=2.5, seconds=0.5, weight=1024)), None),
    (
        m.Offer(Sketched(assignment=11, base=42, steps=20, loss=2.5, seconds=3.75, sketch=bytes(SKETCH_BYTES))),
        None,
    ),
    (
        m.Offer(
            Vetted(assignment=12, base=42, steps=0, loss=0.0, seconds=0.5, reason="no", faulty=(7,), unlisted=(9,))
        ),
        None,
    ),
    (
        m.Offer(Endorsed(assignment=12, base=42, steps=0, loss=0.0, seconds=0.5, reason="no", faulty=(7,))),
        None,
    ),
    (m.Offer(Confirmed(assignment=13, base=42, steps=0, loss=0.0, seconds=0.5, digest=A)), None),
    (m.Offer(Unmasked(assignment=14, base=42, steps=0, loss=0.0, seconds=0.5, payload=Blob(B, 50))), None),
    (m.PayloadChunk(7, 262144), b"\x00\x01payload"),
    (m.Fetch(B, 524288, 262144), None),
    (m.Leave("SIGTERM"), None),
    (m.Enrolled("node-1"), None),
    (
        m.Welcome(
            run="sat-neo",
            node="node-1",
            greeting=3,
            settings=m.WorkerSettings(
                uplink=m.Uplink(
                    codec="topk",
                    options={"ratio": 0.01, "half_values": False, "block": 256, "note": "x", "none": None},
                    ratios=(0.01, 0.5),
                    last="int8",
                    error_feedback=True,
                    decay=1.0,
                    keep=0.0,
                    clip=None,
                    normalize_steps=0,
                    encryption=Encrypted("club/" + "0a" * 16, 4096, 4.0, (0.5, 0.25)),
                ),
                downlink=m.Downlink(codec="fp16", options={}, merge_lerp=0.0, version_momentum=0.0),
                inner=m.Inner(
                    batch_size=8,
                    optimizer="adamw",
                    options={"weight_decay": 0.01},
                    gradient_clip=1.0,
                    proximal=0.0,
                    precision="float32",
                ),
                fragments=1,
                overlap=True,
                site=SiteTerms(0.05, Releases(loss="noised")),
            ),
            manifest=Blob(B, 900),
            heartbeat=0.25,
            lease=1.2,
            forget=(5, 6),
            term=m.Term(2**20, B, "k" * 40),
            version=42,
            digest=A,
            assigned=97,
        ),
        None,
    ),
    (m.Pulse(12.25, 0.25, 1.2), None),
    (m.SendPayload(7, 524288), None),
    (m.Assign(TRAIN), None),
    (m.Assign(Masked(**msgspec.structs.asdict(TRAIN), committee=(SEAT,), weight=0.5)), None),
    (m.Assign(Vet(id=12, base=42, members=b"list", signers=(A,), shares=(b"share",), committee=(SEAT,))), None),
    (m.Assign(Endorse(id=12, base=42, members=b"list", signers=(A,), shares=(b"share",), committee=(SEAT,))), None),
    (m.Assign(Confirm(id=13, base=42, **ABOUT_MASKS)), None),
    (m.Assign(Unmask(id=14, base=42, **ABOUT_MASKS)), None),
    (m.Assign(Flush(id=9, base=42, parameters=ParameterRange(0, 1000))), None),
    (
        m.Assign(
            Evaluate(
                id=10,
                base=42,
                back=(Update("delta", 42, Blob(B, 50), A, (0, 10, 20, 30)),),
                held_out=RowRange(2, 0, 8),
                batch_size=4,
                tokens=1024,
            )
        ),
        None,
    ),
    (m.Assign(Audit(id=11, base=42, train=TRAIN, transcript=TRANSCRIPT, seed=3, perturbation=0.5)), None),
    (m.Newer(News((Update("delta", 43, Blob(A, 5), B),), 8, 0.25)), b"bytes"),
    (m.Ack(7, False, "stale"), None),
    (m.Chunk(B, 524288), bytes(range(16))),
    (m.Gone(A), None),
    (m.Identify(), None),
    (m.Stop("the token budget is met"), None),
    (m.Included(7, 42, b"list", A, ("", "cd" * 64)), None),
    (m.Elsewhere(("zmq://10.0.0.6:7000 xmlrpc://10.0.0.6:7001",)), None),
    (
        f.Follow(m.PROTOCOL_VERSION, "00ff", "spare", A, B, "zmq://10.0.0.6:7000", m.Term(3, A), after=41, tail=B),
        None,
    ),
    (f.Followed("sat-neo", m.Term(3, A), 3.0), None),
    (f.Copy(41, 40), None),
    (f.Rows(41, 43), f.encode_rows((("Noted", 42, 1, 0.5, "paused", "", '{"reason":"alone"}'),))),
    (f.Survey(), None),
    (f.Inventory((f.CopiedFile("data/meta.json", Blob(A, 900)),)), None),
    (o.Observe(m.PROTOCOL_VERSION, "00ff", "wall", A, B), None),
    (o.Observed("sat-neo"), b'{"run":"sat-neo"}'),
]

EVERY = {kind for role in ROLES.values() for kind in (*role.says, *role.hears)}
"""All messages of all roles."""


def decoder_of(message: m.Message) -> Callable[..., Any]:
    """Return the decoder of those who receive this message."""
    if isinstance(message, get_args(m.FromWorker)):
        return decode_from_worker
    if isinstance(message, m.Greeting):
        return partial(decode_incoming, enrolled=False)
    sides = [side for role in ROLES.values() for side in (role.hears, role.says)]
    side = next(side for side in sides if isinstance(message, side))
    return decoder(functools.reduce(operator.or_, side), m.HEADER_LIMIT)


def title(case: tuple[m.Message, bytes | None]) -> str:
    """Return the name of a message, with the kind of its task or result where it has one."""
    match case[0]:
        case m.Assign(task=task):
            return f"Assign {name_of(type(task))}"
        case m.Offer(result=result):
            return f"Offer {name_of(type(result))}"
    return type(case[0]).__name__


def as_hex(case: tuple[m.Message, bytes | None]) -> list[str]:
    return [bytes(frame).hex() for frame in encode(*case)]


Golden = dict[str, str | list[str]]


def unversioned(before: Golden, after: Golden) -> set[str]:
    """Return the messages whose bytes need another protocol version than `before` has, if `after` has none."""
    if before["protocol"] != after["protocol"]:
        return set()
    between_workers_and_controller = {kind.__name__ for kind in (*get_args(m.FromWorker), *get_args(m.FromController))}
    added = (after.keys() - before.keys()) & between_workers_and_controller
    return added | {name for name in before if after.get(name) != before[name]}


def current() -> Golden:
    """Return the bytes that this barnraise writes."""
    bytes_of: Golden = {title(case): as_hex(case) for case in MESSAGES}
    return {"protocol": str(m.PROTOCOL_VERSION)} | bytes_of


@pytest.fixture(scope="module")
def golden() -> Golden:
    stored = json.loads(GOLDEN.read_text())
    if os.environ.get("BARNRAISE_REWRITE_GOLDEN") != "1" or unversioned(stored, current()):
        return stored
    GOLDEN.write_text(json.dumps(current(), indent=1) + "\n")
    return current()


def test_bytes_change_with_the_protocol_version_alone(golden: Golden) -> None:
    found = unversioned(golden, current())
    assert not found, (
        f"{sorted(found)}: raise PROTOCOL_VERSION in wire/messages.py, and {REWRITE}. If this branch has raised it "
        "already, restore the file first: git checkout main -- tests/protocol/golden.json"
    )


def test_every_message_is_here(golden: Golden) -> None:
    assert {type(message) for message, _ in MESSAGES} == EVERY, "MESSAGES has an example of each"
    assert set(golden) == set(current()), REWRITE
    assert golden["protocol"] == str(m.PROTOCOL_VERSION), REWRITE


def test_every_kind_of_task_and_result_is_here() -> None:
    messages = [message for message, _ in MESSAGES]
    assert {type(one.task) for one in messages if isinstance(one, m.Assign)} == set(get_args(AnyTask))
    assert {type(one.result) for one in messages if isinstance(one, m.Offer)} == set(get_args(AnyResult))


@pytest.mark.parametrize("kind", [*get_args(m.FromWorker), *get_args(m.FromController)])
def test_the_overview_names_every_message(kind: type[m.Message]) -> None:
    overview = re.findall(r"^ .*$", m.__doc__ or "", re.MULTILINE)
    found = any(re.search(rf"\b{kind.__name__}\b", line) for line in overview)
    assert found, "add it to the table in the docstring of wire/messages.py"


def test_new_bytes_need_a_new_protocol_version() -> None:
    before: Golden = {"protocol": "9", "Leave": ["00"], "Assign train": ["01"]}
    assert unversioned(before, before | {"Assign probe": ["02"], "Poll": ["03"]}) == set()
    assert unversioned(before, before | {"Leave": ["04"], "Stop": ["05"]}) == {"Leave", "Stop"}
    assert unversioned(before, {"protocol": "9", "Leave": ["00"]}) == {"Assign train"}
    assert unversioned(before, {"protocol": "10", "Leave": ["04"], "Stop": ["05"]}) == set()


@pytest.mark.parametrize("case", MESSAGES, ids=title)
def test_bytes_stay_the_same(case: tuple[m.Message, bytes | None], golden: Golden) -> None:
    assert as_hex(case) == golden.get(title(case)), REWRITE


@pytest.mark.parametrize("case", MESSAGES, ids=title)
def test_golden_bytes_are_understood(case: tuple[m.Message, bytes | None], golden: Golden) -> None:
    message, raw = case
    decoded, tail = decoder_of(message)([bytes.fromhex(frame) for frame in golden.get(title(case), ())])
    assert decoded == message
    assert (None if tail is None else bytes(tail)) == raw
