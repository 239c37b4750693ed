"""Controller and worker in two network namespaces without a shared folder: serve on one, join on the other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnraise.ledger.view import LedgerView

HOST, GUEST = "10.213.77.1", "10.213.77.2"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """Two namespaces joined by a veth pair; skips without root or iproute2."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    names = f"br-host-{os.getpid()}", f"br-guest-{os.getpid()}"
    try:
        ip("netns", "add", names[0])
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
    try:
        ip("netns", "add", names[1])
        ip("link", "add", "veth0", "netns", names[0], "type", "veth", "peer", "name", "veth1", "netns", names[1])
        for name, device, address in ((names[0], "veth0", HOST), (names[1], "veth1", GUEST)):
            ip("-n", name, "address", "add", f"{address}/24", "dev", device)
            ip("-n", name, "link", "set", device, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


@pytest.mark.campaign
@pytest.mark.slow
def test_serve_on_one_machine_join_on_another(barnraise, run_file, namespaces, tmp_path: Path) -> None:
    host, guest = namespaces
    path = run_file(workers=[], controller={"host": HOST, "evaluations": 3, "evaluation_rows": 16})
    serve = barnraise("serve", str(path), "--json", prefix=["ip", "netns", "exec", host])
    invite = serve.wait_for(lambda text: (m := re.search(r"barnraise join '(.*)'", text)) and m[1])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    join = barnraise(
        "join", invite, "--name", "guest", "--threads", "1", "--home", str(elsewhere / "home"),
        "--network", "50mbit/5ms",
        cwd=elsewhere, prefix=["ip", "netns", "exec", guest],
    )  # fmt: skip
    home = elsewhere / "home"
    join.wait_for(lambda _: any(home.rglob("train-00000.bin")))
    assert serve.wait() == 0, serve.text() + join.text()
    assert join.wait(60) == 0, join.text()
    assert re.search(
        r"this machine did [1-9][0-9]* contributions?.*, [1-9][0-9,]* tokens, .* sent, .* received", join.text()
    )
    result = serve.json()
    assert result["workers"] == 1
    assert result["final_loss"] < result["first_loss"]
    with LedgerView(Path(result["run_dir"]) / "ledger.sqlite") as view:
        assert [node.node for node in view.nodes()] == ["guest"]
    assert {path.name for path in home.rglob("*") if path.is_file()} <= {"keys.json", "lock"}, "data stays of a run"
