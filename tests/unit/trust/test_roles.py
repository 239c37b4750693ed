"""An invite that is used with another command says which one takes it, and what to ask the host for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from barnraise.cli.main import main
from barnraise.transport import Keys
from barnraise.transport.invite import Invite
from barnraise.trust.roles import HELPER, OBSERVER, ROLES, STANDBY, WORKER

TAKEN_BY = {"join": (WORKER, HELPER), "standby": (STANDBY,), "status": (OBSERVER,)}


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
    assert f"{role}: use it with `{ROLES[role]}`" in said
    assert f"`barnraise invite RUN_DIR --role {TAKEN_BY[command][0]}`" in said
