"""A lab for real: controller and workers in network namespaces, joined by the packet emulator."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnraise.emulation import namespaces
from barnraise.ledger import Judged
from barnraise.ledger.view import LedgerView

from .test_train import once_in_versions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(namespaces.missing()), reason=f"no lab here: {namespaces.missing()}"),
]
TRAINING = {"tokens": 60_000, "batch_size": 4, "local_steps": 5, "learning_rate": 0.003, "compression": "topk"}


def left(run: str) -> list[str]:
    """The namespaces of a lab that are there."""
    if not namespaces.PLACE.is_dir():
        return []
    return sorted(path.name for path in namespaces.PLACE.iterdir() if path.name.startswith(f"lab-{run}-"))


def soon(condition: Callable[[], Any], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(condition())


@pytest.fixture
def name() -> Iterator[str]:
    """A name for the run of its own, so that labs may run side by side."""
    name = f"t{os.getpid()}"
    yield name
    namespaces.remove(left(name))


@pytest.fixture
def lab_file(run_file: Callable[..., Path], tmp_path: Path, name: str) -> Callable[..., Path]:
    def write(**sections: Any) -> Path:
        return run_file(**{"run": {"name": name, "dir": str(tmp_path / "runs")}, "training": TRAINING, **sections})

    return write


@pytest.mark.campaign
def test_two_workers_train_over_cellular_links(barnraise, lab_file, name: str) -> None:
    lab = barnraise("lab", str(lab_file()), "--network", "cellular", "--json")
    assert lab.wait(100) == 0, lab.text()
    result = lab.json()
    assert result["workers"] == 2
    assert result["final_loss"] < result["first_loss"]
    run_dir = Path(result["run_dir"])
    once_in_versions(run_dir)
    links = json.loads((run_dir / "links.json").read_text())
    assert links == result["links"]
    host, one, two = links["links"]
    assert (host["name"], one["name"], two["name"]) == ("host", "one", "two")
    payloads = result["bytes_up"], result["bytes_down"]
    for payload, way, back in zip(payloads, ("up", "down"), ("down", "up"), strict=True):
        carried = one[way]["bytes"] + two[way]["bytes"]
        assert payload < carried < 2 * payload + 1_000_000, "frames, encryption, TCP and IP come on top"
        assert abs(host[back]["bytes"] - carried) < 0.1 * carried
    assert "10 Mbit/s up" in one["link"]
    assert "links, Mbit/s up/down" in lab.text()
    assert left(name) == []
    assert any((run_dir / "lab").rglob("train-00000.bin")), "the data did not travel"


@pytest.mark.campaign
def test_an_attacker_attacks_from_its_namespace(barnraise, lab_file) -> None:
    workers = [{"name": "one"}, {"name": "two", "attack": {"kind": "nan"}}]
    lab = barnraise("lab", str(lab_file(workers=workers, training=TRAINING | {"tokens": 20_000})), "--json")
    assert lab.wait(100) == 0, lab.text()
    with LedgerView(Path(lab.json()["run_dir"]) / "ledger.sqlite") as view:
        judged = [decision for _, decision in view.replay() if isinstance(decision, Judged)]
    found = {name: {one.verdict for one in judged if one.node == name} for name in ("one", "two")}
    assert "accepted" in found["one"]
    assert "refused" in found["two"]
    assert "accepted" not in found["two"]


@pytest.mark.campaign
def test_a_brown_out_only_pauses_work(barnraise, lab_file) -> None:
    network = {"profile": "20mbit/20ms", "brownout_every": 7, "brownout_seconds": 3}
    one_for_all = {"longest_lease": 1.2}  # else a worker that has seen one brown-out is not taken for gone in the next
    file = lab_file(network=network, controller=one_for_all, training={**TRAINING, "tokens": 180_000})
    lab = barnraise("lab", str(file), "--json")
    assert lab.wait(150) == 0, lab.text()
    result = lab.json()
    run_dir = Path(result["run_dir"])
    assert result["tokens"] >= 180_000
    once_in_versions(run_dir)
    with LedgerView(run_dir / "ledger.sqlite") as view:
        assert result["accepted"] == view.totals().accepted
        changes = [getattr(decision, "change", "") for _, decision in view.replay()]
    assert "silent" in changes, "the leases did not end: the brown-outs were too short"


@pytest.mark.campaign
def test_a_worker_that_is_cut_off_comes_back(barnraise, lab_file) -> None:
    faults = [
        {"at": 0.1, "do": "partition", "node": "one", "seconds": 8.0},
        {"at": 0.5, "do": "one_way_loss", "way": "up", "node": "two", "seconds": 3.0},
        {"at": 0.7, "do": "reorder", "share": 0.2, "seconds": 5.0},
    ]
    training = {**TRAINING, "tokens": 180_000}
    lab = barnraise("lab", str(lab_file(faults=faults, training=training)), "--network", "20mbit/20ms", "--json")
    assert lab.wait(150) == 0, lab.text()
    result = lab.json()
    run_dir = Path(result["run_dir"])
    once_in_versions(run_dir)
    with LedgerView(run_dir / "ledger.sqlite") as view:
        changes = [d.change for _, d in view.replay() if type(d).__name__ == "NodeChanged" and d.node == "one"]
    assert "silent" in changes, "it was heard all the time"
    assert "joined" in changes[changes.index("silent") :], "it did not come back"


@pytest.mark.campaign
def test_frames_are_spoiled_and_the_controller_dies(barnraise, lab_file, name: str) -> None:
    faults = [
        {"at": 0.1, "do": "corrupt", "share": 0.05, "seconds": 4.0},
        {"at": 0.5, "do": "partition", "node": "one", "seconds": 600.0},
        {"at": 0.55, "do": "kill_controller", "seconds": 0.5},
    ]
    training = {**TRAINING, "tokens": 180_000}
    lab = barnraise("lab", str(lab_file(faults=faults, training=training)), "--network", "20mbit/20ms", "--json")
    assert lab.wait(200) == 0, lab.text()
    result = lab.json()
    run_dir = Path(result["run_dir"])
    once_in_versions(run_dir)
    assert "broke down" not in lab.text(), "a worker's process ended over what it could not read"
    with LedgerView(run_dir / "ledger.sqlite") as view:
        assert view.epoch == 2
        late = [d.node for _, d in view.replay() if getattr(d, "verdict", "") == "accepted"][-10:]
    assert "one" in late, "what befell its link outlived the controller that planned it"
    logs = [(run_dir / "logs" / f"worker-{worker}.log").read_text() for worker in ("one", "two")]
    assert [log.count("joined run") for log in logs] == [1, 1], "the workers were started again"
    assert left(name) == []
    assert any(one["up"]["bytes"] for one in result["links"]["links"])


def test_nothing_outlives_a_lab_that_is_killed(barnraise, lab_file, name: str) -> None:
    training = {**TRAINING, "tokens": 50_000_000}
    lab = barnraise("lab", str(lab_file(training=training)), "--network", "10mbit/50ms")
    lab.wait_for(lambda text: re.search(r"\bone joined", text))
    names = left(name)
    assert len(names) == 3
    other = barnraise("lab", str(lab_file(training=training)))
    assert other.wait(60) == 2
    assert "are there already" in other.text()
    assert left(name) == names
    workers = [pid for each in names for pid in namespaces.pids(each) if pid != lab.popen.pid]
    assert len(workers) == 2
    lab.kill()
    assert soon(lambda: left(name) == []), left(name)
    assert soon(lambda: not any(Path(f"/proc/{pid}/stat").exists() for pid in workers))


def test_stale_namespaces_are_refused_with_a_remedy(barnraise, lab_file, name: str) -> None:
    subprocess.run(["ip", "netns", "add", f"lab-{name}-host"], check=True)
    lab = barnraise("lab", str(lab_file()))
    assert lab.wait(60) == 2
    assert "ip netns delete $n" in lab.text()
    assert f"lab-{name}-host" in lab.text()


def test_ns3_carries_the_packets(barnraise, lab_file) -> None:
    pytest.importorskip("ns", reason="the package ns3 is not installed")
    lab = barnraise("lab", str(lab_file()), "--network", "10mbit/20ms", "--ns3", "--json")
    assert lab.wait(200) == 0, lab.text()
    assert lab.json()["links"]["backend"] == "ns3"
