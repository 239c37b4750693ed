"""A Python call that fails leaves nothing behind in the process that made it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest

import barnraise
from barnraise.assembly.serving import Invitation, serve_new
from barnraise.assembly.voice import Voice
from barnraise.config import load
from barnraise.core.errors import AddressError
from barnraise.plan.purpose import SERVE
from barnraise.plan.resolve import resolve

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
