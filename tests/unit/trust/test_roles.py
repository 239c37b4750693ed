"""The table of roles: the messages and tasks of each, and the errors for other ones and for wrong invites."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from barnraise.cli.main import COMMANDS, main
from barnraise.core.errors import InputError
from barnraise.core.types import KINDS
from barnraise.transport import Keys
from barnraise.transport.invite import Invite
from barnraise.trust.roles import HELPER, OBSERVER, ROLES, STANDBY, TRUSTEE, WORKER, require_role, said_by, tasks_of
from barnraise.wire import following as f
from barnraise.wire import messages as m
from barnraise.wire import observing as o

TAKEN_BY = {"join": (WORKER, HELPER, TRUSTEE), "standby": (STANDBY,), "status": (OBSERVER,)}
ACCESS = Path(__file__).parents[3] / "docs/guides/access.md"
WRONG = [(command, role) for command, taken in TAKEN_BY.items() for role in ROLES if role not in taken]


@pytest.mark.parametrize(("command", "role"), WRONG)
def test_an_invite_for_another_role(
    command: str, role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    invite = Invite.create("127.0.0.1", 1, "run", Keys.generate().public, now=time.time(), lifetime=60.0, role=role)
    assert main([command, str(invite)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{role}: use it with `{ROLES[role].command}`" in said
    assert f"`barnraise invite RUN_DIR --role {TAKEN_BY[command][0]}`" in said


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_a_command_and_a_row_in_the_docs(role: str) -> None:
    name = ROLES[role].command.split()[1]
    assert ROLES[role].command == f"barnraise {name} INVITE"
    assert name in COMMANDS
    assert role in TAKEN_BY[name]
    assert f"\n| `{role}` |" in ACCESS.read_text(), "the table of roles in docs/guides/access.md"


EVALUATOR = {m.Enrol, m.Hello, m.Heartbeat, m.RequestTask, m.Decline, m.Offer, m.Fetch, m.Leave}
MAY_SAY = {
    WORKER: EVALUATOR | {m.Subscribe, m.PayloadChunk},
    HELPER: EVALUATOR,
    TRUSTEE: EVALUATOR - {m.Fetch} | {m.PayloadChunk},
    STANDBY: {f.Follow, f.Copy, f.Survey, m.Fetch},
    OBSERVER: {o.Observe},
}
"""The messages of each role, written a second time: a change of the table is no accident."""


@pytest.mark.parametrize("role", ROLES)
def test_the_messages_of_a_role(role: str) -> None:
    assert set(ROLES[role].says) == MAY_SAY[role]
    assert {kind for kind in said_by(ROLES.values()) if kind in ROLES[role].says} == MAY_SAY[role]


def test_the_tasks_of_a_role() -> None:
    assert {role: set(tasks_of(role, [*KINDS, "paint"])) for role in (*ROLES, "king")} == {
        WORKER: {"train", "masked", "flush", "evaluate", "audit"},
        HELPER: {"evaluate", "audit"},
        TRUSTEE: {"vet", "endorse", "confirm", "unmask"},
        STANDBY: set(),
        OBSERVER: set(),
        "king": set(),
    }


def test_an_unknown_role_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError) as caught:
        require_role("king")
    assert all(role in str(caught.value) for role in ROLES)
