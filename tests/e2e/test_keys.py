"""New keys for a machine that joined, as its owner takes them."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from barnraise.core.signals import COME_AGAIN
from barnraise.ledger.decisions import NodeChanged
from barnraise.ledger.evidence import Signatures
from barnraise.ledger.view import LedgerView

from .test_lifecycle import ENDLESS, accepted, run_dir_of

pytestmark = pytest.mark.slow


@pytest.mark.campaign
def test_a_machine_takes_new_keys_and_stays_the_same_node(barnraise, run_file, tmp_path: Path) -> None:
    serve = barnraise("serve", str(run_file(training=ENDLESS, workers=[])), "--uses", "1")
    run_dir, home = run_dir_of(serve), tmp_path / "home"
    invite = serve.wait_for(lambda text: (m := re.search(r"barnraise join '(.*)'", text)) and m[1])
    arguments = ("join", invite, "--name", "guest", "--threads", "1", "--home", str(home))
    first = barnraise(*arguments)
    first.wait_for(accepted(run_dir, 2))
    first.popen.send_signal(signal.SIGTERM)
    assert first.wait(60) == COME_AGAIN, first.text()
    (path,) = home.rglob("keys.json")
    before = json.loads(path.read_text())["public"]
    second = barnraise(*arguments, "--new-keys")
    with LedgerView(run_dir / "ledger.sqlite") as view:
        count = view.totals().accepted
    second.wait_for(accepted(run_dir, count + 2))
    second.kill()
    after = json.loads(path.read_text())["public"]
    assert after != before
    assert list(home.rglob("keys-next.json")) == []
    third = barnraise(*arguments)  # as usual again
    with LedgerView(run_dir / "ledger.sqlite") as view:
        count = view.totals().accepted
    third.wait_for(accepted(run_dir, count + 2))
    with LedgerView(run_dir / "ledger.sqlite") as view:
        rows, proof = [row for _, row in view.replay()], Signatures()
        assert [reason for row in rows if (reason := proof.wrong(row))] == []
        keys = [row.key for row in rows if isinstance(row, NodeChanged) and row.key]
        assert keys == [before, after]
        assert {node.node for node in view.nodes()} == {"guest"}
    assert proof.signed
    third.kill()
    serve.kill()
