"""The passing on of an invite: the command, and the options that a run asks of its workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from barnraise.cli.invites import show
from barnraise.ledger import RunDirectory
from barnraise.transport import Invite

SITE = {"data": {"kind": "site", "context": 32}}
ENCRYPTED = {"privacy": {"homomorphic_encryption": {"key": "club/" + "0" * 32, "nodes": 2}}}


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({}, "workers join with:"),
        (SITE, "workers join with this and --data FILES:"),
        (SITE | ENCRYPTED, "workers join with this and --data FILES and --key FILE:"),
    ],
)
def test_serve_tells_what_options_workers_need(tmp_path: Path, sections: dict[str, Any], told: str) -> None:
    run = RunDirectory(tmp_path)
    content = {"model": {"architecture": "gpt2"}, "data": {"kind": "text", "files": ["a.txt"]}}
    run.run_file.write_text(yaml.safe_dump(content | sections))
    invite = Invite("127.0.0.1", 4000, "trial", "k" * 40, "0" * 16, bytes(32), expires=2_000_000_000)
    said: list[str] = []
    show(run, invite, tmp_path / "invite", said.append)
    assert said[0] == told
    assert said[1].startswith("barnraise join '")
