"""`barnraise invite` and `barnraise invites`: what an invite is for, how often and how long it is good."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from barnraise.assembly import addresses
from barnraise.assembly.invites import open_book
from barnraise.cli.main import main
from barnraise.ledger import RunDirectory
from barnraise.transport import Invite, Keys


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory.create("led", tmp_path)
    Keys.load_or_create(run.keys / "controller.json")
    whereabouts = json.dumps({"uri": "zmq://127.0.0.1:7000", "mode": "serve"}).encode()
    run.write(run.path / addresses.FILE, whereabouts)
    run.run_file.touch()
    run.ledger.touch()
    return run


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    try:
        found = main(list(arguments))
    except SystemExit as done:
        found = int(done.code or 0)
    assert found == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_an_invite_has_a_role_uses_and_an_expiry(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    line = said(capsys, "invite", str(run.path), "--role", "helper", "--uses", "3", "--expires", "2d")
    invite = Invite.parse(line, time.time())
    assert (invite.role, invite.uses) == ("helper", 3)
    assert abs(invite.expires - time.time() - 2 * 86_400) < 60
    assert Invite.parse(said(capsys, "invite", str(run.path), "--standby"), time.time()).role == "standby"
    assert Invite.parse(said(capsys, "invite", str(run.path)), time.time()).role == "worker"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--role", "operator"), "barnraise finish, revoke and invite RUN_DIR"),
        (("--role", "obsever"), "did you mean 'observer'?"),
        (("--expires", "2"), "write it with a unit, as 2h or 2d"),
        (("--expires", "two days"), "as 90min, 36h or 2d"),
        (("--expires", "0h"), "must be more than nothing"),
        (("--expires", "1e9d"), "as 90min, 36h or 2d"),
        (("--expires", "999999999w"), "at most 10 years"),
    ],
)
def test_invalid_options_of_an_invite_are_refused_with_the_nearest_form(
    run: RunDirectory, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], reason: str
) -> None:
    assert reason in said(capsys, "invite", str(run.path), *options, code=2)
    with open_book(run) as book:
        assert book.tokens == {}


def test_invites_are_listed_with_what_is_left_of_them(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert "barnraise invite" in said(capsys, "invites", str(run.path))
    tokens = [
        Invite.parse(said(capsys, "invite", str(run.path), "--role", role, "--uses", "2"), time.time()).token
        for role in ("worker", "observer", "helper", "standby")
    ]
    with open_book(run) as book:
        for _ in range(2):
            book.spend(tokens[0])
        book.spend(tokens[1], "a key")
        book.spend(tokens[1], "a key")  # the same machine
        book.revoke(tokens[2])
    listed = [json.loads(line) for line in said(capsys, "invites", str(run.path), "--json").splitlines()]
    found = {one["invite"]: (one["role"], one["uses"], one["state"]) for one in listed}
    assert found == {
        tokens[0]: ("worker", 0, "used up"),
        tokens[1]: ("observer", 1, "open"),
        tokens[2]: ("helper", 2, "taken back"),
        tokens[3]: ("standby", 2, "open"),
    }
    text = said(capsys, "invites", str(run.path))
    assert all(token in text for token in tokens)
    assert "uses left" in text
