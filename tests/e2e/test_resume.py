"""`resume` of a killed run where something is in the way: what the error advises helps."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from barnraise.assembly.addresses import recorded_uri
from barnraise.ledger import LedgerView, RunDirectory, notes


@pytest.mark.campaign
@pytest.mark.timeout(300)
def test_a_taken_port_and_an_edited_run_file(barnraise, run_file) -> None:
    train = barnraise("train", str(run_file()), "--json")
    run = RunDirectory(Path(train.wait_for(lambda text: re.search(r"run directory (\S+)", text)).group(1)))

    def checkpointed(text: str) -> bool:
        if not recorded_uri(run):
            return False
        with LedgerView(run.ledger) as view:
            return bool(view.events(notes.Checkpointed))

    train.wait_for(checkpointed)
    train.kill()
    port = int(recorded_uri(run).rsplit(":", 1)[1])
    text = run.run_file.read_text()
    with socket.socket() as other, socket.socket() as free:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the killed controller's connections linger
        other.bind(("127.0.0.1", port))
        other.listen(1)
        refused = barnraise("resume", str(run.path))
        assert refused.wait() == 2
        assert f"port {port} on 127.0.0.1 is taken" in refused.text()
        assert f"set controller.port to another one (0 takes a free one); that is in {run.run_file}" in refused.text()
        assert "Traceback" not in refused.text()

        run.run_file.write_text(text.replace("context: 64", "context: 32"))
        refused = barnraise("resume", str(run.path))
        assert refused.wait() == 2
        assert "data.context was 64 and is 32" in refused.text()

        free.bind(("127.0.0.1", 0))
        wanted = free.getsockname()[1]
        free.close()
        run.run_file.write_text(text.replace("port: 0", f"port: {wanted}", 1))
        resumed = barnraise("resume", str(run.path), "--json")
        assert resumed.wait() == 0, resumed.text()
    assert recorded_uri(run) == f"zmq://127.0.0.1:{wanted}"
    assert resumed.json()["tokens"] >= 120_000
