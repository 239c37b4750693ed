"""A run directory that was changed by hand, opened again: damage that is repaired, or refused with a remedy."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import hashlib
import json
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from barnraise.assembly import hosting
from barnraise.assembly.addresses import address, listen, recorded_mode, recorded_uri
from barnraise.assembly.hosting import Host, open_host
from barnraise.assembly.local_workers import LocalWorkers
from barnraise.config.aliases import MOVED
from barnraise.config.load import load
from barnraise.config.schema import ControllerSection
from barnraise.config.trial_sections import WorkerSection
from barnraise.controller.state.actions import Journal
from barnraise.core.errors import BarnraiseError, DataError, RunDirectoryError, RunFileError
from barnraise.ledger import NodeChanged, Noted, RunDirectory
from barnraise.plan.purpose import TRAIN
from barnraise.plan.resolve import Plan, resolve
from barnraise.transport import Keys

from .test_report import make


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Prepared, and opened once by a controller that was killed."""
    (tmp_path / "text.txt").write_text("a barn is raised by many hands.\n" * 200)
    run, plan = make(tmp_path, {"kind": "text", "files": [str(tmp_path / "text.txt")], "context": 32})
    host = start(run, plan)
    host.ledger.commit([action.decision for action in host.first if isinstance(action, Journal)], {})
    close(host)
    return run


def start(run: RunDirectory, plan: Plan, warnings: list[str] | None = None) -> Host:
    return open_host(run, plan, (warnings if warnings is not None else []).append)


def close(host: Host) -> None:
    host.server.executor.close()
    host.ledger.close()


def plan_of(run: RunDirectory) -> Plan:
    return resolve(load(run.run_file), purpose=TRAIN)


def edit(run: RunDirectory, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, run.run_file.read_text())
    assert count == 1
    run.run_file.write_text(text)


def content(run: RunDirectory) -> dict[str, bytes]:
    """All files but the ledger's."""
    files = (path for path in run.path.rglob("*") if path.is_file() and not path.match("ledger*"))
    return {str(path): path.read_bytes() for path in files}


def test_a_forbidden_edit_is_refused_and_no_file_is_touched(run: RunDirectory) -> None:
    edit(run, "context: 32", "context: 64")
    before = content(run)
    with pytest.raises(RunFileError, match=r"data\.context was 32 and is 64\. These cannot change in a run"):
        start(run, plan_of(run))
    assert content(run) == before
    edit(run, "context: 64", "context: 32")
    close(start(run, plan_of(run)))


def test_an_allowed_edit_is_on_the_ledger_once(run: RunDirectory) -> None:
    edit(run, r"(?m)^  tokens: \d+", "  tokens: 77000")
    told = []
    for _ in range(2):
        host = start(run, plan_of(run))
        noted = [action.decision for action in host.first if isinstance(action, Journal)]
        host.ledger.commit(noted, {})
        told.append([d.note.changed for d in noted if isinstance(d, Noted) and d.kind == "run_file"])
        close(host)
    assert told == [["training.tokens was 2000000 and is 77000"], []]


def test_a_run_begun_before_run_files_were_kept_is_resumed_with_the_one_it_has(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a barn is raised by many hands.\n" * 200)
    run, plan = make(tmp_path, {"kind": "text", "files": [str(tmp_path / "text.txt")], "context": 32})
    host = start(run, plan)
    journaled = [action.decision for action in host.first if isinstance(action, Journal)]
    host.ledger.commit([d for d in journaled if getattr(d, "kind", "") != "run_file"], {})
    close(host)
    again = start(run, plan_of(run))
    assert again.resumed
    assert [a.decision.kind for a in again.first if isinstance(a, Journal) and isinstance(a.decision, Noted)][-1:] == [
        "run_file"
    ]
    close(again)


def test_a_run_of_an_older_barnraise_resumes_with_the_old_names_of_keys(run: RunDirectory) -> None:
    """Its run.yaml and its ledger have them. Neither is a change, and run.yaml stays as it is."""
    text = yaml.safe_dump(older(yaml.safe_load(run.run_file.read_text())))
    run.run_file.write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    with closing(sqlite3.connect(run.ledger)) as ledger, ledger:
        (told,) = ledger.execute("SELECT detail FROM events WHERE kind = 'run_file'").fetchone()
        note = json.loads(told)
        note["content"] = older(note["content"])
        ledger.execute("UPDATE events SET detail = ? WHERE kind = 'run_file'", (json.dumps(note),))
    kinds = []
    for _ in range(2):
        host = start(run, plan_of(run))
        noted = [a.decision for a in host.first if isinstance(a, Journal) and isinstance(a.decision, Noted)]
        host.ledger.commit(noted, {})
        kinds.append([decision.kind for decision in noted if decision.kind in ("run_file", "rests_on")])
        assert [d.note.files["run.yaml"] for d in noted if d.kind == "rests_on"] in ([digest], [])
        close(host)
    assert kinds == [["rests_on"], []]
    assert run.run_file.read_text() == text
    edit(run, r"\n  compression: none", "\n  compression: topk")
    with pytest.raises(RunFileError, match=r"exchange\.compression was 'none' and is 'topk'"):
        start(run, plan_of(run))


def older(content: dict[str, Any]) -> dict[str, Any]:
    """A run file's content under the old names of its keys, as an older barnraise wrote it."""
    moved = copy.deepcopy(content)
    for old, key in MOVED.items():
        (former, spelling), (section, name) = old.split("."), key.split(".")
        moved[former][spelling] = moved[section].pop(name)
    return {section: keys for section, keys in moved.items() if keys != {}}


@pytest.mark.parametrize("damage", ["deleted", "empty", "cut"])
def test_a_manifest_that_is_lost_is_made_again(run: RunDirectory, damage: str) -> None:
    path = run.path / "manifest.json"
    right = path.read_bytes()
    if damage == "deleted":
        path.unlink()
    else:
        path.write_bytes(right[: len(right) // 2] if damage == "cut" else b"")
    warnings: list[str] = []
    close(start(run, plan_of(run), warnings))
    assert path.read_bytes() == right
    assert [("manifest.json" in warning, "made again" in warning) for warning in warnings] == [(True, True)]


@pytest.mark.parametrize("text", ["", "{", '{"uri": "zmq://127.0.0.1:1"}', '{"uri": 1, "mode": "train"}', "\udcff"])
def test_an_address_that_cannot_be_read_says_what_to_write(run: RunDirectory, text: str) -> None:
    (run.path / "address.json").write_text(text, errors="surrogateescape")
    for read in (recorded_mode, recorded_uri):
        with pytest.raises(RunDirectoryError, match=r'address\.json cannot be read .*write it again as {"uri": "zmq:'):
            read(run)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_local_worker_whose_key_is_lost_is_told_what_to_do(run: RunDirectory, replaced: bool) -> None:
    path = run.keys / "worker-one.json"
    host = start(run, plan_of(run))
    host.ledger.commit([NodeChanged(0.0, "one", "enrolled", key=Keys.load_or_create(path).public)], {})
    close(host)
    path.unlink()
    if replaced:
        Keys.load_or_create(path)
    host = start(run, plan_of(run))
    worker = WorkerSection(name="one")
    local = LocalWorkers(run, [worker], [], lambda index, worker: None, print)
    local.server = host.server
    with pytest.raises(RunDirectoryError, match=r"'one' by is not in .*worker-one\.json any more: restore the file"):
        local.launch(worker)
    assert path.exists() == replaced
    close(host)


def test_a_run_that_never_listened_has_no_address(run: RunDirectory) -> None:
    assert recorded_uri(run) == ""
    with pytest.raises(RunDirectoryError, match="was never started"):
        recorded_mode(run)


def test_ports_of_the_run_file_count_before_those_it_had() -> None:
    before = "zmq://127.0.0.1:4001 xmlrpc://127.0.0.1:4002"
    assert address(ControllerSection(), "") == "zmq://127.0.0.1:0"
    assert address(ControllerSection(), before) == "zmq://127.0.0.1:4001"
    assert address(ControllerSection(port=5000), before) == "zmq://127.0.0.1:5000"
    assert address(ControllerSection(http_port=0), before) == before
    assert address(ControllerSection(http_port=6000), before) == "zmq://127.0.0.1:4001 xmlrpc://127.0.0.1:6000"
    assert (
        address(ControllerSection(use_zmq=False), before) == "xmlrpc://127.0.0.1:0"
    )  # another protocol is another port


def test_the_address_is_replaced_and_never_written_over(run: RunDirectory) -> None:
    """A controller killed while it writes it leaves the old one."""

    async def listened() -> str:
        host = start(run, plan_of(run))
        uri = await listen(host.server, run, host.plan, "serve")
        await host.server.listener.close(linger=0.0)
        close(host)
        return uri

    first = asyncio.run(listened())
    with (run.path / "address.json").open() as reader:
        assert asyncio.run(listened()) == first == recorded_uri(run)
        assert json.loads(reader.read()) == {"uri": first, "mode": "serve"}
        assert os.fstat(reader.fileno()).st_nlink == 0
    assert recorded_mode(run) == "serve"


def test_damage_that_costs_nothing_is_told(run: RunDirectory) -> None:
    with sqlite3.connect(run.ledger) as connection:
        connection.execute("UPDATE meta SET value = 2 WHERE key = 'segment_number'")
    (run.segments / "00000001.seg").write_bytes(b"no record")
    warnings: list[str] = []
    close(start(run, plan_of(run), warnings))
    (warning,) = warnings
    assert "00000001.seg is damaged at byte 0" in warning


def test_a_dataset_that_is_lost_names_the_file(run: RunDirectory) -> None:
    (run.data / "meta.json").unlink()
    before = content(run)
    with pytest.raises(BarnraiseError, match=r"meta\.json"):
        start(run, plan_of(run))
    assert content(run) == before


def test_held_out_rows_that_no_worker_fetches_are_refused_before_the_start(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(run)
    measured = plan.run_file.evaluation.model_copy(update={"by": "workers"})
    changed = plan.run_file.model_copy(update={"evaluation": measured})
    monkeypatch.setattr(hosting, "MAX_SHARD_BYTES", 100)
    close(start(run, plan))
    with pytest.raises(DataError, match=r"held-out rows are .*at most 100 B: set evaluation\.by to controller"):
        start(run, dataclasses.replace(plan, run_file=changed))
