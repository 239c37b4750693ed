"""A Python call that fails leaves nothing behind in the process that made it."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest

import barnraise
from barnraise.assembly.serving import Invitation, serve_new
from barnraise.assembly.voice import Voice
from barnraise.config import load
from barnraise.core.errors import AddressError, InviteError
from barnraise.models.problems import CATALOG, FILES
from barnraise.plan.purpose import SERVE
from barnraise.plan.resolve import resolve

from ..problems import Line
from .test_report import MODEL


def run_file(folder: Path, port: int = 0) -> dict[str, Any]:
    (folder / "text.txt").write_text("a barn is raised by many hands.\n" * 200)
    return {
        "run": {"name": "barn", "dir": str(folder / "runs")},
        "model": MODEL,
        "data": {"kind": "text", "files": [str(folder / "text.txt")], "context": 32},
        "controller": {"port": port},
    }


def held(folder: Path) -> list[str]:
    """Files under `folder`, and ports, that this process has open."""
    process = psutil.Process()
    files = [file.path for file in process.open_files() if file.path.startswith(str(folder))]
    ports = [str(one.laddr) for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    return files + ports


def test_a_port_that_was_taken_since_it_was_looked_at(tmp_path: Path) -> None:
    before = held(tmp_path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        plan = resolve(load(run_file(tmp_path, other.getsockname()[1])), purpose=SERVE)
        with pytest.raises(AddressError, match="is taken"):
            asyncio.run(serve_new(plan, Voice.of(print), Invitation(1, 1.0, lambda run, invite, file: None)))
    assert list((tmp_path / "runs").iterdir()) == []
    assert held(tmp_path) == before


def test_a_caller_that_fails_when_it_is_given_the_invite(tmp_path: Path) -> None:
    before, invites = held(tmp_path), []

    def invited(invite: str) -> None:
        invites.append(invite)
        raise ValueError("nobody to send it to")

    with pytest.raises(ValueError, match="nobody to send it to"):
        barnraise.serve(run_file(tmp_path), invited=invited)
    assert invites[0].startswith("barnraise://")
    assert held(tmp_path) == before


def test_a_simulation_trains_a_problem_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(CATALOG, "entries", dict(CATALOG.entries))
    monkeypatch.setenv(FILES, "")
    training = {"tokens": 2000, "batch_size": 10, "local_steps": 5, "learning_rate": 0.02}
    run: dict[str, Any] = {"training": training, "evaluation": {"times": 2}}
    report = barnraise.simulate(run, problem=Line(slope=3.0), nodes=2, real=True, tokens_per_second=100.0)
    assert report.tokens >= 2000
    losses = report.losses
    assert losses.first_loss is not None
    assert losses.final_loss is not None
    assert losses.final_loss < losses.first_loss


def test_a_served_run_of_ones_own_problem_needs_its_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run has no options of a model, and the file of the class names it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(CATALOG, "entries", dict(CATALOG.entries))
    monkeypatch.setenv(FILES, "")

    def invited(invite: str) -> None:
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        barnraise.serve({"run": {"dir": str(tmp_path / "runs")}}, problem=Line(slope=3.0), invited=invited)
    with pytest.raises(InviteError):
        barnraise.join("no invite", problem=Line)
    assert "line=" in os.environ[FILES]
