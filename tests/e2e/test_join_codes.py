"""How `barnraise join` ends, as its exit code tells; and machines that have one name, or copies of one folder."""

from __future__ import annotations

import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

from barnraise.core.files import write_file
from barnraise.core.signals import COME_AGAIN
from barnraise.ledger.view import LedgerView

from .test_lifecycle import ENDLESS, accepted, run_dir_of

pytestmark = pytest.mark.slow

FOREIGN = """
import runpy, sys
from barnraise.wire import messages
messages.PROTOCOL_VERSION += 1
sys.argv = sys.argv[3:]
runpy.run_module("barnraise.cli.main", run_name="__main__", alter_sys=True)
"""
"""Runs what follows `python -m` as a barnraise that speaks another protocol."""


@pytest.mark.campaign
def test_exit_codes_and_names(barnraise, run_file, tmp_path: Path) -> None:
    serve = barnraise("serve", str(run_file(training=ENDLESS, workers=[])))
    run_dir = run_dir_of(serve)
    invite = serve.wait_for(lambda text: (m := re.search(r"barnraise join '(.*)'", text)) and m[1])

    def join(home: str, *options: str, prefix: list[str] | None = None):
        return barnraise("join", invite, "--threads", "1", "--home", str(tmp_path / home), *options, prefix=prefix)

    first = join("one")
    name = first.wait_for(lambda text: (m := re.search(r"joined run \S+ as '(.*)'; ", text)) and m[1])
    first.wait_for(accepted(run_dir, 1))
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    copy = join("copy")  # the same name, and the same keys
    copy.wait_for(lambda text: f"joining as '{name}-2'" in text)
    assert "where a home folder was copied" in copy.text()
    same = join("other")  # the same name alone
    same.wait_for(lambda text: f"joining as '{name}-3'" in text)
    assert f"the name '{name}' is taken" in same.text()
    same.wait_for(lambda text: "joined run" in text)
    same.kill()
    with LedgerView(run_dir / "ledger.sqlite") as view:
        assert {name, f"{name}-2", f"{name}-3"} <= {node.node for node in view.nodes()}
        assert [node.change for node in view.nodes() if node.node == name] == ["joined"], "the first was not disturbed"
    copy.popen.send_signal(signal.SIGTERM)
    assert copy.wait() == COME_AGAIN, copy.text()
    script = tmp_path / "foreign.py"
    write_file(script, FOREIGN.encode())
    foreign = join("copy", prefix=[sys.executable, str(script)])
    assert foreign.wait() == 2, foreign.text()
    assert "protocol version" in foreign.text()
    finish = barnraise("finish", str(run_dir))
    assert first.wait() == 0, first.text()
    assert finish.wait() == 0, finish.text()
    assert serve.wait() == 0, serve.text()
