"""A run whose updates are masked: its trustees, a controller that is killed, the resume, and the verification."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnraise.core.errors import RunDirectoryError
from barnraise.ledger import LedgerView, RunDirectory, notes
from barnraise.ledger.decisions import Assigned

MASKED = {
    "training": {
        "tokens": 40_000, "batch_size": 4, "local_steps": 5, "learning_rate": 0.003, "compression": "none",
    },
    "controller": {"evaluations": 4, "evaluation_rows": 16, "checkpoint_seconds": 2.0, "keep_payloads": True},
    "privacy": {"secure_aggregation": {"trustees": 4, "colluding": 1}},
}  # fmt: skip


def test_a_masked_run_survives_its_controller_and_can_be_verified(barnraise, run_file) -> None:
    train = barnraise("train", str(run_file(**MASKED)), "--json")
    run = RunDirectory(Path(train.wait_for(lambda text: re.search(r"run directory (\S+)", text)).group(1)))

    def unmasked(text: str) -> bool:
        try:
            with LedgerView(run.ledger) as view:
                return len(view.events(notes.VersionUnmasked)) >= 2
        except RunDirectoryError:  # it is not there yet, or has no tables yet
            return False

    train.wait_for(unmasked)
    train.kill()
    resumed = barnraise("resume", str(run.path), "--json")
    assert resumed.wait() == 0, resumed.text()
    assert resumed.json()["tokens"] >= 40_000
    with LedgerView(run.ledger) as view:
        versions = [note.version for _, note in view.events(notes.VersionUnmasked)]
        losses = [note.loss for _, note in view.events(notes.Evaluated)]
    for log in sorted(run.logs.glob("worker-[!t]*.log"))[:2]:
        told = log.read_text()
        assert "found it in the list that a quorum of the trustees signed" in told
        assert (found := re.search(r"(\d+) of (\d+) masked updates? proven to be in versions", told)), told
        assert int(found[1]) >= 1
        assert "WARNING" not in told
    assert len(set(versions)) == len(versions), "masks come off a version once"
    assert losses[-1] < losses[0]
    verified = barnraise("verify", str(run.path))
    assert verified.wait() == 3, verified.text()  # nothing can repeat stateful work
    assert re.search(r"versions +sound", verified.text()), verified.text()


def test_a_lab_starts_no_trustees(barnraise, run_file) -> None:
    refused = barnraise("lab", str(run_file(**MASKED)))
    assert refused.wait() == 2
    assert "privacy.secure_aggregation: is given, and this is a lab" in refused.text()


@pytest.mark.campaign
def test_workers_with_a_roster_work_for_its_trustees_alone(barnraise, run_file, tmp_path: Path) -> None:
    masked = MASKED | {"training": MASKED["training"] | {"tokens": 10**9}}
    serve = barnraise("serve", str(run_file(**masked, workers=[])))
    run = RunDirectory(Path(serve.wait_for(lambda text: (m := re.search(r"run directory (\S+)", text)) and m[1])))
    invites = {"worker": serve.wait_for(lambda text: (m := re.search(r"barnraise join '(.*)'", text)) and m[1])}
    made = barnraise("invite", str(run.path), "--role", "trustee", "--uses", "4")
    assert made.wait() == 0, made.text()
    invites["trustee"] = made.out.read_text().strip()

    def join(role: str, name: str, *options: str):
        home = ("--threads", "1", "--home", str(tmp_path / name), "--name", name)
        return barnraise("join", invites[role], *home, *options)

    lines = []
    for number in range(1, 5):
        trustee = join("trustee", f"t{number}")
        lines.append(trustee.wait_for(lambda text: (m := re.search(r"([0-9a-f]{64} .*) OWNER", text)) and m[1]))
    good, bad, crowd = (tmp_path / name for name in ("good.txt", "bad.txt", "crowd.txt"))
    named = [f"{line} owner {number}" for number, line in enumerate(lines)]
    good.write_text("\n".join(["colluding 1", *named]))
    bad.write_text("\n".join(["colluding 1", named[0].replace(lines[0][:64], "ab" * 32), *named[1:]]))
    crowd.write_text("\n".join(["colluding 1", *(f"{line} Eve" for line in lines)]))
    workers = [join("worker", name, "--trustees", str(good)) for name in ("ann", "bob")]
    refused, crowded = join("worker", "cy", "--trustees", str(bad)), join("worker", "di", "--trustees", str(crowd))
    assert crowded.wait() == 2, crowded.text()
    assert "4 of 4 trustees belong to 'Eve', at most 1 may" in crowded.text()
    assert refused.wait() == 1, refused.text()
    assert f"trustees t1 of the run are not in {bad} with these keys" in " ".join(refused.text().split())
    for worker in workers:
        worker.wait_for(lambda text: "found it in the list that a quorum of the trustees signed" in text)
    assert "trustee 't1' joined from this machine" in serve.text()
    with LedgerView(run.ledger) as view:
        tokens = {node.node: node.tokens for node in view.nodes()}
    assert tokens["cy"] == 0
    assert tokens["ann"] > 0


@pytest.mark.campaign
def test_trustees_with_a_roster_of_members_add_no_updates_of_others(barnraise, run_file, tmp_path: Path) -> None:
    masked = MASKED | {"training": MASKED["training"] | {"tokens": 10**9}}
    serve = barnraise("serve", str(run_file(**masked, workers=[])))
    run = RunDirectory(Path(serve.wait_for(lambda text: (m := re.search(r"run directory (\S+)", text)) and m[1])))
    invite = serve.wait_for(lambda text: (m := re.search(r"barnraise join '(.*)'", text)) and m[1])
    made = barnraise("invite", str(run.path), "--role", "trustee", "--uses", "4")
    assert made.wait() == 0, made.text()

    def join(ticket: str, name: str, *options: str):
        home = ("--threads", "1", "--home", str(tmp_path / name), "--name", name)
        return barnraise("join", ticket, *home, *options)

    workers = {name: join(invite, name) for name in ("ann", "bob", "eve")}
    lines = [
        worker.wait_for(lambda text: (m := re.search(r"([0-9a-f]{64} \S+) OWNER", text)) and m[1])
        for worker in workers.values()
    ]
    members = tmp_path / "members.txt"
    members.write_text("\n".join(f"{line} the lab" for line in lines[:2]))
    wrong = join(invite, "di", "--members", str(members))
    assert wrong.wait() == 2
    assert "--members is for trustees" in wrong.text()
    trustees = [join(made.out.read_text().strip(), f"t{one}", "--members", str(members)) for one in range(1, 5)]
    trustees[0].wait_for(lambda text: "accepts updates of the 2 members" in text)
    for name in ("ann", "bob"):
        workers[name].wait_for(lambda text: "found it in the list that a quorum of the trustees signed" in text)
    left_out = "its node is not on the rosters of members"
    workers["eve"].wait_for(lambda _: left_out in str(reasons(run, "eve")))
    with LedgerView(run.ledger) as view:
        nodes = {node.node: node for node in view.nodes()}
    assert nodes["eve"].change == "joined", "it is not put out"
    assert not any(left_out in str(reasons(run, name)) for name in ("ann", "bob"))


def reasons(run: RunDirectory, node: str) -> list[str]:
    """Return why contributions of a node were taken back."""
    with LedgerView(run.ledger) as view:
        owners = {d.assignment: d.node for _, d in view.replay() if isinstance(d, Assigned)}
        return [note.reason for _, note in view.events(notes.Voided) if owners[note.assignment] == node]
