"""A run whose updates are encrypted: workers with a key file, and a host without it that is killed and resumed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from barnraise.ledger import LedgerView, RunDirectory, notes

SECTIONS = {
    "workers": [],
    "training": {
        "tokens": 30_000, "batch_size": 4, "local_steps": 5, "learning_rate": 0.01,
        "adapter": {"kind": "lora", "rank": 4, "train": "b_only"},
    },
    "controller": {"evaluation_rows": 16, "checkpoint_seconds": 1.0, "keep_payloads": True},
    "evaluation": {"by": "workers", "times": 3},
}  # fmt: skip


def windows(content: bytes, size: int, count: int) -> list[bytes]:
    """Return pieces of some bytes, evenly spread over them, that are no runs of zeros."""
    starts = range(0, len(content) - size, max(size, len(content) // count // size * size))
    return [piece for start in starts if any(piece := content[start : start + size])]


@pytest.mark.campaign
@pytest.mark.slow
def test_a_host_without_the_key_adds_updates_and_is_resumed(barnraise, run_file, tmp_path: Path) -> None:
    made = [barnraise("keys", "make", name, "--json") for name in ("club.key", "foreign.key")]
    assert [process.wait() for process in made] == [0, 0]
    key = made[0].json()["key"]
    path = run_file(**SECTIONS, privacy={"homomorphic_encryption": {"key": key, "nodes": 1}})
    serve = barnraise("serve", str(path), "--json")
    invite = serve.wait_for(lambda text: (found := re.search(r"barnraise join '(.*)'", text)) and found[1])
    run = RunDirectory(Path(re.search(r"run directory (\S+)", serve.text()).group(1)))

    def join(name: str, *options: str):
        return barnraise("join", invite, "--name", name, "--threads", "1", "--home", str(tmp_path / name), *options)

    keyless, stranger = join("keyless"), join("stranger", "--key", "foreign.key")
    members = [join(name, "--key", "club.key") for name in ("ann", "bob")]

    def trains(text: str) -> bool:
        with LedgerView(run.ledger) as view:
            return sum(note.loss is not None for _, note in view.events(notes.Evaluated)) >= 1

    serve.wait_for(trains)
    serve.kill()
    for refused, told in ((keyless, "ask a member of the run for its file"), (stranger, f"encrypted with {key}")):
        assert refused.wait() != 0
        assert told in refused.text()
    resumed = barnraise("resume", str(run.path), "--json")
    assert resumed.wait() == 0, resumed.text()
    assert [member.wait() for member in members] == [0, 0], members[0].text()
    with LedgerView(run.ledger) as view:
        losses = [note.loss for _, note in view.events(notes.Evaluated)]
    assert losses[-1] < losses[0]

    assert barnraise("export", str(run.path), "--as", "adapter").wait() == 2
    exported = barnraise("export", str(run.path), "--as", "adapter", "--key", "club.key", "--to", "adapter")
    assert exported.wait() == 0, exported.text()
    assert "round trip" in exported.text()
    written = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    trained = np.concatenate([values.ravel() for name, values in written.items() if "lora_B" in name])
    assert np.count_nonzero(trained) > trained.size / 2
    secret = (tmp_path / "club.key").read_bytes().partition(b"\n")[2]
    hidden = windows(secret, 64, 40) + windows(trained.tobytes(), 8, 40)
    for file in run.path.rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        assert not [piece for piece in hidden if piece in content], f"{file} holds the key, or the model"

    verified = barnraise("verify", str(run.path))
    assert verified.wait() == 3, verified.text()  # nothing can repeat stateful work
    assert re.search(r"versions +sound", verified.text()), verified.text()
