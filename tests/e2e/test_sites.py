"""Runs of real processes whose rows stay with their owners: nothing of a row is on the wire, nor with the host."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barnraise.assembly.joining import join
from barnraise.core.signals import COME_AGAIN
from barnraise.core.sites import OwnFiles
from barnraise.data.shards import Dataset
from barnraise.ledger.decisions import Assigned, Judged, Noted
from barnraise.ledger.notes import PrivacySpent
from barnraise.ledger.view import LedgerView
from barnraise.transport import Invite
from barnraise.transport.roaming import RoamingConnection

WINDOW = 8
"""Token ids in a row that count as a part of a row."""

WIDTHS = ("<u1", "<u2", "<u4", "<i8")


class WireTap:
    """A proxy before the controller that keeps all bytes of both directions."""

    def __init__(self, port: int) -> None:
        self.target, self.heard, self._lock = port, bytearray(), threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                with self._lock:
                    self.heard += data
                other.sendall(data)
        with suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.listener.close()


@contextmanager
def wire_tap(port: int) -> Iterator[WireTap]:
    tap = WireTap(port)
    try:
        yield tap
    finally:
        tap.close()


@contextmanager
def frames_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[bytearray]:
    """Keep the plaintext of all frames that workers of this process send."""
    kept, send = bytearray(), RoamingConnection.send

    async def recording(self: RoamingConnection, frames: Sequence[Any]) -> bool:
        for frame in frames:
            kept.extend(bytes(frame))
        return await send(self, frames)

    with monkeypatch.context() as patch:
        patch.setattr(RoamingConnection, "send", recording)
        yield kept


def own_text(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{name.upper()}-SECRET-{number:05d} belongs to {name} and to no one else\n" for number in range(900)]
    path = folder / "own.txt"
    path.write_text("".join(lines))
    return path


def traces(folder: Path, name: str) -> list[bytes]:
    """Return what must be nowhere: the marker, and token ids of rows in each width of numbers."""
    dataset = Dataset.open(folder)
    rows = [dataset.rows(0, row, row + 1)["tokens"][0] for row in range(0, dataset.num_rows, 40)]
    rows += list(dataset.held_out(4)["tokens"])
    found = [f"{name.upper()}-SECRET".encode()]
    for row in rows:
        ids = np.asarray(row)[:WINDOW]
        found += [ids.astype(width).tobytes() for width in WIDTHS if width != "<u1" or ids.max() < 256]
    return found


def holds(content: bytes | bytearray, wanted: Sequence[bytes]) -> list[bytes]:
    return [piece for piece in wanted if piece in content]


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path, path.read_bytes()


def site_run(run_file: Any, port: int, **sections: Any) -> Path:
    path: Path = run_file(
        workers=[],
        data={"kind": "site", "context": 32, "releases": {"held_out": "each"}},
        evaluation={"by": "sites", "times": 3, "rows": 16},
        controller={"host": "127.0.0.1", "port": port, "checkpoint_seconds": 1.0, "lease": 8.0},
        aggregation={"rule": "mean"},
        **sections,
    )
    return path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def invite_of(text: str) -> str | None:
    found = re.search(r"barnraise join '(.*)'", text)
    return found[1] if found else None


def words(folder: Path, files: Path, name: str) -> list[str]:
    return ["--name", name, "--threads", "1", "--home", str(folder), "--data", str(files), "--yes"]


@pytest.mark.slow
def test_a_run_of_sites_has_no_row_on_the_wire_nor_with_the_host(
    barnraise: Any, run_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = {"tokens": 40_000, "batch_size": 4, "local_steps": 5, "learning_rate": 0.003}
    port = free_port()
    serve = barnraise("serve", str(site_run(run_file, port, training=training)), "--json")
    printed = serve.wait_for(invite_of)
    run_dir = next((tmp_path / "runs").iterdir())
    with ExitStack() as stack:
        tap, frames = stack.enter_context(wire_tap(port)), stack.enter_context(frames_of(monkeypatch))
        invite = str(replace(Invite.parse(Path(printed[1:]).read_text(), 0.0), port=tap.port))
        ann, bob = own_text(tmp_path / "ann", "ann"), own_text(tmp_path / "bob", "bob")
        others: list[Any] = []

        def say(text: str) -> None:
            if text.startswith("own rows:"):  # it would come too late for a run that another has done alone
                others.append(barnraise("join", invite, *words(tmp_path / "home-ann", ann, "ann")))

        own = OwnFiles((str(bob),))
        given: dict[str, Any] = {"name": "bob", "home": tmp_path / "home-bob", "own": own, "threads": 1}
        asyncio.run(asyncio.wait_for(join(invite, say, **given), 240.0))
        assert [other.wait() for other in others] == [0]
        assert serve.wait() == 0
    for name in ("ann", "bob"):
        (rows,) = (path.parent for path in (tmp_path / f"home-{name}").rglob("own/rows/meta.json"))
        wanted = traces(rows, name)
        files = b"".join(content for _, content in contents(rows))
        assert len(holds(files, wanted[1:])) > 10, "the search finds rows where they are"
        assert len(tap.heard) > 100_000
        assert len(frames) > 50_000
        assert not holds(tap.heard, wanted)
        assert not holds(frames, wanted)
        for path, content in contents(run_dir):
            assert not holds(content, wanted), path
    assert {d.node for d in decisions(run_dir, Assigned) if d.kind == "train"} == {"ann", "bob"}
    verify = barnraise("verify", str(run_dir))
    assert verify.wait() == 3, "sound as far as checked"
    assert "their rows stay with their owners" in verify.text()


@pytest.mark.campaign
@pytest.mark.slow
def test_a_killed_site_and_a_killed_controller_go_on(barnraise: Any, run_file: Any, tmp_path: Path) -> None:
    training = {"tokens": 60_000, "batch_size": 4, "local_steps": 5, "learning_rate": 0.003}
    port = free_port()
    serve = barnraise("serve", str(site_run(run_file, port, training=training)), "--json")
    invite = serve.wait_for(invite_of)
    run_dir = next((tmp_path / "runs").iterdir())
    text = own_text(tmp_path / "ann", "ann")
    arguments = ["join", invite, *words(tmp_path / "home", text, "ann"), "--slowdown", "3"]
    first = barnraise(*arguments)
    serve.wait_for(lambda _: accepted(run_dir) >= 5)
    first.kill()
    second = barnraise(*arguments)
    reached = accepted(run_dir)
    serve.wait_for(lambda _: accepted(run_dir) >= reached + 5)
    serve.kill()
    resumed = barnraise("resume", str(run_dir), "--json")
    assert resumed.wait() == 0, resumed.text()
    assert second.wait() == 0, second.text()
    lanes = {rows.shard for d in decisions(run_dir, Assigned) if d.kind == "train" for rows in d.rows}
    assert lanes == {1}, "the same rows are the same lane after both deaths"


@pytest.mark.campaign
@pytest.mark.slow
def test_a_site_leaves_before_the_run_spends_more_than_its_owner_lets_it(
    barnraise: Any, run_file: Any, tmp_path: Path
) -> None:
    """The controller may name any noise and any rows: the site counts by itself, also over its own restart."""
    port, training = free_port(), {"tokens": 400_000, "batch_size": 24, "local_steps": 5, "learning_rate": 0.003}
    private = {"profile": "example", "epsilon": 8.0, "delta": 1e-5, "clip": 1.0, "uses": 40}
    path = site_run(run_file, port, training=training, privacy={"differential_privacy": private})
    serve = barnraise("serve", str(path), "--json")
    invite = serve.wait_for(invite_of)
    run_dir = next((tmp_path / "runs").iterdir())
    text = own_text(tmp_path / "ann", "ann")
    arguments = ["join", invite, *words(tmp_path / "home", text, "ann"), "--epsilon", "1.5"]
    for _ in range(2):
        process = barnraise(*arguments)
        assert process.wait() == COME_AGAIN, process.text()
        assert "leaves before they spend more than epsilon 1.5 at delta 1e-05" in process.text()
        assert "the owner's limit of epsilon 1.5 at delta 1e-05 has no room for the task: 1.3" in process.text()
    spent = [d.note.epsilon for d in decisions(run_dir, Noted) if isinstance(d.note, PrivacySpent)]
    assert 1.5 < max(spent) < 4.0, "the host counts assignments, also those that the site refused"
    assert accepted(run_dir) > 5
    serve.kill()


def decisions(run_dir: Path, kind: type[Any]) -> list[Any]:
    with LedgerView(run_dir / "ledger.sqlite") as view:
        return [d for _, d in view.replay() if isinstance(d, kind)]


def accepted(run_dir: Path) -> int:
    return sum(d.verdict == "accepted" for d in decisions(run_dir, Judged))


def test_a_site_without_consent_does_not_join(barnraise: Any, tmp_path: Path) -> None:
    process = barnraise("join", "nonsense", "--data", str(own_text(tmp_path / "ann", "ann")))
    assert process.wait() == 2
    assert "--yes" in process.text()
    assert "stay here" in process.text()
