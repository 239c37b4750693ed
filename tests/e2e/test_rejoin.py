"""A worker that was killed comes back: its replica is on its disk, and only what differs crosses the link."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from barnraise.core.signals import COME_AGAIN
from barnraise.ledger.view import LedgerView

from .conftest import Process
from .test_lifecycle import ENDLESS, accepted, run_dir_of

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

MODEL = {"architecture": "gpt2", "config": {"hidden_size": 128, "num_layers": 2, "num_heads": 2}}
MODEL_BYTES = 4 * 400_000
"""Bytes of the model's parameters, at least."""


def came(process: Process) -> dict[str, Any]:
    """End a worker, and return its last words."""
    process.popen.send_signal(signal.SIGTERM)
    assert process.wait(60) == COME_AGAIN, process.text()
    lines = [json.loads(line) for line in process.out.read_text("utf-8").splitlines()]
    (end,) = [line for line in lines if line["event"] == "end"]
    return end


def test_a_killed_worker_fetches_less_than_the_model(barnraise, run_file, tmp_path: Path) -> None:
    training = {**ENDLESS, "downlink_compression": "sparse_loco"}
    serve = barnraise("serve", str(run_file(training=training, workers=[], model=MODEL)))
    run_dir, home = run_dir_of(serve), tmp_path / "home"
    invite = serve.wait_for(lambda text: (m := re.search(r"barnraise join '(.*)'", text)) and m[1])

    def join(name: str, more: int) -> Process:
        """Start a worker and wait until `more` contributions are accepted."""
        with LedgerView(run_dir / "ledger.sqlite") as view:
            count = view.totals().accepted
        process = barnraise(
            "join", invite, "--name", name, "--threads", "1", "--home", str(home), "--log", "json"
        )  # fmt: skip
        process.wait_for(accepted(run_dir, count + more))
        return process

    first = join("guest", 3)
    (kept,) = home.rglob("*.replica")
    assert kept.stat().st_size > MODEL_BYTES
    first.kill()

    again = came(join("guest", 2))
    assert 0 < again["bytes_down"] < MODEL_BYTES / 2, again
    (kept,) = home.rglob("*.replica")

    other = join("other", 1)  # in the same home
    assert len(list(home.rglob("*.replica"))) == 2
    assert came(other)["bytes_down"] > MODEL_BYTES

    spoiled = bytearray(kept.read_bytes())
    spoiled[-1000] ^= 1
    kept.write_bytes(spoiled)
    third = join("guest", 1)
    assert len(re.findall(f"the replica in {kept} is not used: its bytes have another digest", third.text())) == 1
    assert came(third)["bytes_down"] > MODEL_BYTES / 2, "a leaf at least, and as versions were made meanwhile, both"
    assert not kept.exists()
    serve.kill()
