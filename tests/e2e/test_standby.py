"""A standby continues with all workers after kill -9 of its controller, and the old controller is fenced off."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from barnraise.ledger import RunDirectory
from barnraise.verification import verify


def rows(run: Path, query: str, *values: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"{(run / 'ledger.sqlite').as_uri()}?mode=ro", uri=True)) as connection:
        try:
            return connection.execute(query, values).fetchall()
        except sqlite3.OperationalError:  # its tables are not made yet
            return []


def accepted(run: Path) -> dict[int, str]:
    return dict(rows(run, "SELECT assignment, digest FROM contributions WHERE verdict = 'accepted'"))


@pytest.mark.slow
def test_the_standby_of_a_killed_controller_continues_with_its_workers(barnraise, run_file, tmp_path: Path) -> None:
    path = run_file(
        workers=[],
        training={"tokens": 10**9, "batch_size": 4, "local_steps": 5},
        controller={"evaluations": 1, "evaluation_rows": 16, "durability": "standby", "standby_lease": 2.0}
        | {"standby_patience": 3600.0},
    )
    serve = barnraise("serve", str(path))
    serve.wait_for(lambda text: "barnraise join" in text)
    run = next((tmp_path / "runs").iterdir())
    home = str(tmp_path / "home")
    joins = [
        barnraise("join", f"@{run / 'keys' / 'invite'}", "--name", name, "--threads", "1", "--home", home)
        for name in ("north", "south")
    ]
    serve.wait_for(lambda text: "acknowledgements wait" in text)  # there is no standby yet
    invite = barnraise("invite", str(run), "--standby")
    assert invite.wait() == 0
    ticket = tmp_path / "ticket"
    ticket.write_text(invite.out.read_text())
    refused = barnraise("standby", f"@{run / 'keys' / 'invite'}", "--dir", str(tmp_path / "no"))
    assert refused.wait() == 2, refused.text()
    assert "--role standby" in refused.text()

    standby = barnraise("standby", f"@{ticket}", "--dir", str(tmp_path / "copies"))
    copy = tmp_path / "copies" / run.name
    standby.wait_for(lambda text: "can take over" in text)
    serve.wait_for(lambda text: "standby has all" in text)
    standby.wait_for(lambda text: len(accepted(run)) >= 8)
    serve.kill()
    before = accepted(run)

    standby.wait_for(lambda text: "taking over" in text)
    (epoch,) = rows(run, "SELECT value FROM meta WHERE key = 'epoch'")[0]
    query = "SELECT count(DISTINCT node) FROM contributions WHERE epoch > ? AND verdict = 'accepted'"
    standby.wait_for(lambda text: rows(copy, query, epoch)[0][0] == 2)
    assert not [join.text() for join in joins if join.popen.poll() is not None]
    after = accepted(copy)
    shared = {number: digest for number, digest in before.items() if after.get(number) == digest}
    assert len(before) - len(shared) <= 2 * len(joins)  # contributions that were committed and not yet acknowledged
    again = rows(copy, "SELECT assignment FROM contributions WHERE verdict = 'accepted' GROUP BY 1 HAVING count(*) > 1")
    assert again == []

    old = barnraise("resume", str(run))
    assert old.wait(120) == 1, old.text()
    assert "has taken over" in old.text()
    assert rows(copy, query, epoch)[0][0] == 2
    spoilt = barnraise("standby", f"@{ticket}", "--dir", str(tmp_path / "copies"))
    assert spoilt.wait() == 2, spoilt.text()
    assert "barnraise resume" in spoilt.text()
    os.kill(standby.popen.pid, signal.SIGINT)
    assert standby.wait(60) in (0, 130), standby.text()
    for folder in (run, copy):
        assert verify(RunDirectory.open(folder)).findings == []
