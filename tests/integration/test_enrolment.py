"""Newcomers, standbys and observers come in while others send wrong proofs; who is refused for now asks again."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import pytest
from tests.intrude.kit.member import enrolment as greeting

from barnraise.assembly.invites import BookReader, new_invite, open_book
from barnraise.assembly.observing import look
from barnraise.assembly.revoking import revoke_invite
from barnraise.controller.shell import enrolment
from barnraise.controller.shell.enrolment import ATTEMPTS_A_SECOND, Enrolment, UnansweredError
from barnraise.core.errors import InviteError, NotNowError
from barnraise.transport import Keys
from barnraise.trust.roles import OBSERVER, STANDBY, WORKER
from barnraise.wire.following import Follow
from barnraise.wire.frames import encode
from barnraise.wire.messages import PROTOCOL_VERSION, Enrol, Enrolled
from barnraise.wire.observing import Observe
from barnraise.worker import enrolling
from barnraise.worker.options import WorkerOptions

from .test_roles import Guest, both, guest
from .test_standbys import leading, run_directory, within

WRONG = 10 * ATTEMPTS_A_SECOND


def wrong(name: str) -> list[Enrol | Follow | Observe]:
    """Return greetings of each kind by a stranger without an invite."""
    made = PROTOCOL_VERSION, secrets.token_hex(8), name, secrets.token_hex(32), secrets.token_hex(32)
    return [Enrol(*made, signer="0" * 64), Follow(*made, uri="zmq://127.0.0.1:1"), Observe(*made)]


async def flood(stranger: Guest, count: int) -> None:
    for number in range(count):
        for message in wrong(f"n{number}"):
            await stranger.connection.send(encode(message))
        await asyncio.sleep(0.01)  # the pace of the flood: this process is the controller, too


@both
def test_a_flood_of_wrong_proofs_keeps_no_newcomer_out(tmp_path: Path, use_zmq: bool) -> None:
    run = run_directory(tmp_path, use_zmq=use_zmq)

    async def play() -> None:
        async with leading(run, tmp_path) as (led, _), guest(led) as stranger:
            await flood(stranger, ATTEMPTS_A_SECOND)
            flooding = asyncio.ensure_future(flood(stranger, 10**9))
            for number in range(3):
                async with guest(led) as newcomer:
                    assert isinstance(await newcomer.enrol(led.invite(WORKER), f"newcomer-{number}"), Enrolled)
            assert (await look(str(led.invite(OBSERVER)), tmp_path / "home")).run == run.path.name
            async with led.follower() as follower:
                await led.complete(follower, asyncio.ensure_future(follower.follow()))
            flooding.cancel()

    within(60.0, play())


def test_wrong_proofs_are_counted_by_address_and_cost_no_look_at_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enrolment.time, "monotonic", lambda: 7.0)
    run, keys, ann = run_directory(tmp_path), Keys.generate(), Keys.generate()
    invite = new_invite(run, "zmq://127.0.0.1:1", keys.public, uses=100, hours=1.0)
    told: list[str] = []
    door = Enrolment(keys, lambda: open_book(run), warn=told.append, read_book=BookReader(run))
    (run.keys / "invites.lock").unlink()  # each process that opens the book makes this file

    def answer(message: Enrol, address: str) -> type[Exception] | None:
        try:
            door.let_in(message, ann.public, taken=False, address=address)
        except InviteError as error:
            return type(error)
        return None

    bad, good = wrong("ann")[0], greeting(invite, ann, "ann")
    assert isinstance(bad, Enrol)
    heard = [answer(bad, "10.0.0.1") for _ in range(WRONG)]
    assert heard == [InviteError] * ATTEMPTS_A_SECOND + [UnansweredError] * (WRONG - ATTEMPTS_A_SECOND)
    assert not (run.keys / "invites.lock").exists()
    assert answer(bad, "10.0.0.2") is InviteError
    assert ["wrong proofs" in text for text in told] == [True]
    heard = [answer(good, "10.0.0.1") for _ in range(ATTEMPTS_A_SECOND + 1)]
    assert heard == [None] * ATTEMPTS_A_SECOND + [NotNowError]
    assert answer(good, "10.0.0.2") is None


def test_the_book_is_read_again_once_it_was_changed(tmp_path: Path) -> None:
    run, keys, ann = run_directory(tmp_path), Keys.generate(), Keys.generate()
    reader = BookReader(run)
    assert not reader().tokens
    door = Enrolment(keys, lambda: open_book(run), read_book=reader)
    invite = new_invite(run, "zmq://127.0.0.1:1", keys.public, uses=1, hours=1.0)
    assert reader() is reader()
    door.prove(greeting(invite, ann, "ann"), ann.public, "10.0.0.1")
    revoke_invite(run, invite.token)
    assert reader().tokens[invite.token].revoked


def test_a_standbys_invite_lets_no_worker_wait_for_its_place(tmp_path: Path) -> None:
    run, keys, ann = run_directory(tmp_path), Keys.generate(), Keys.generate()
    door = Enrolment(keys, lambda: open_book(run), read_book=BookReader(run))
    invite = new_invite(run, "zmq://127.0.0.1:1", keys.public, uses=1, hours=1.0, role=STANDBY)
    with pytest.raises(InviteError, match="standby"):
        door.prove(greeting(invite, ann, "ann"), ann.public, "10.0.0.1")


@both
def test_a_refusal_that_passes_is_asked_about_again(
    tmp_path: Path, use_zmq: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enrolling, "INTERVAL", 0.05)
    run = run_directory(tmp_path, use_zmq=use_zmq)

    async def play() -> None:
        async with leading(run, tmp_path) as (led, _), guest(led) as ann:
            (run.keys / "allow").write_text("no key\n")
            told, refused = list[str](), asyncio.Event()

            def say(text: str) -> None:
                told.append(text)
                refused.set()

            options = WorkerOptions(led.uri, led.keys.public, "ann", ann.keys, tmp_path / "cache")
            enrolled = asyncio.ensure_future(enrolling.enrol(ann.connection, options, led.invite(WORKER), say))
            await refused.wait()
            (run.keys / "allow").unlink()
            await enrolled
            assert "asks again" in told[0]

    within(60.0, play())
