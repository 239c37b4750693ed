"""A worker whose network lets no ZMQ out: it finds HTTP by itself, and loses nothing when the controller is killed."""

from __future__ import annotations

import dataclasses
import re
import socket
import time
from pathlib import Path

import pytest

from barnraise.ledger.decisions import Judged, VersionClosed
from barnraise.ledger.view import LedgerView
from barnraise.transport import Invite


@pytest.mark.campaign
@pytest.mark.slow
def test_join_over_http_when_zmq_is_blocked_and_the_controller_is_killed(barnraise, run_file, tmp_path: Path) -> None:
    controller = {"http_port": 0, "evaluations": 3, "evaluation_rows": 16, "checkpoint_seconds": 1.0}
    serve = barnraise("serve", str(run_file(workers=[], controller=controller)), "--json")
    run_dir = Path(serve.wait_for(lambda text: (m := re.search(r"run directory (\S+)", text)) and m[1]))
    invite = serve.wait_for(lambda text: (m := re.search(r"barnraise join '@(.*)'", text)) and m[1])
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: no server answers there
        blocked = dataclasses.replace(Invite.parse(Path(invite).read_text(), time.time()), port=closed.getsockname()[1])
        join = barnraise("join", str(blocked), "--name", "guest", "--threads", "1", "--home", str(tmp_path / "home"))

        def versions(_: str) -> bool:
            with LedgerView(run_dir / "ledger.sqlite") as view:
                return len(view.versions()) >= 6

        serve.wait_for(versions)
        serve.kill()
        resumed = barnraise("resume", str(run_dir), "--json")
        assert resumed.wait() == 0, resumed.text() + join.text()
        assert join.wait(60) == 0, join.text()
    assert re.search(r"ZMQ at \S+ does not answer \(nothing answers at .*\); using HTTP at 127\.0\.0\.1:", join.text())
    assert resumed.json()["tokens"] >= 120_000
    with LedgerView(run_dir / "ledger.sqlite") as view:
        decisions = [decision for _, decision in view.replay()]
        assert view.epoch == 2
        assert [node.node for node in view.nodes()] == ["guest"]
    accepted = [d.assignment for d in decisions if isinstance(d, Judged) and d.verdict == "accepted"]
    merged = [assignment for d in decisions if isinstance(d, VersionClosed) for assignment in d.contributions]
    assert sorted(accepted) == sorted(merged)
    assert len(set(accepted)) == len(accepted)


@pytest.mark.campaign
@pytest.mark.slow
def test_a_run_over_http_alone(barnraise, run_file) -> None:
    path = run_file(controller={"use_zmq": False, "evaluations": 3, "evaluation_rows": 16})
    process = barnraise("train", str(path), "--json")
    assert process.wait() == 0, process.text()
    result = process.json()
    assert result["final_loss"] < result["first_loss"]
