"""A controller, its standby and two workers in network namespaces, and cuts between them: nothing acknowledged goes."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from barnraise.emulation import namespaces

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(namespaces.missing()), reason=f"no namespaces here: {namespaces.missing()}"),
]

PLACES = ("controller", "standby", "north", "south")


class Network:
    """A namespace for each of PLACES, all on one bridge. Routes that are black holes cut them off from each other."""

    def __init__(self) -> None:
        self.bridge = f"cut{os.getpid()}"
        self.addresses = {place: f"10.79.0.{number}" for number, place in enumerate(PLACES, 1)}
        self.cuts: set[tuple[str, str]] = set()
        self._run(f"ip link add {self.bridge} type bridge", f"ip link set {self.bridge} up")
        for number, place in enumerate(PLACES):
            name, outer = self.name(place), f"{self.bridge}o{number}"
            self._run(
                f"ip netns add {name}",
                f"ip link add {outer} type veth peer name eth0 netns {name}",
                f"ip link set {outer} master {self.bridge} up",
                f"ip -n {name} address add {self.addresses[place]}/24 dev eth0",
                f"ip -n {name} link set eth0 up",
                f"ip -n {name} link set lo up",
            )

    def name(self, place: str) -> str:
        return f"{self.bridge}-{place}"

    def inside(self, place: str) -> list[str]:
        """Return the beginning of a command in a place."""
        return ["ip", "netns", "exec", self.name(place)]

    def divide(self, *groups: str) -> None:
        """From now on only those in one group, which are its words, reach each other."""
        group_of = {place: number for number, group in enumerate(groups) for place in group.split()}
        wanted = {(one, other) for one in PLACES for other in PLACES if group_of[one] != group_of[other]}
        for one, other in wanted ^ self.cuts:
            change = "add" if (one, other) in wanted else "delete"
            self._run(f"ip -n {self.name(one)} route {change} blackhole {self.addresses[other]}/32")
        self.cuts = wanted

    def heal(self) -> None:
        self.divide(" ".join(PLACES))

    def remove(self) -> None:
        namespaces.remove([self.name(place) for place in PLACES])
        subprocess.run(["ip", "link", "delete", self.bridge], capture_output=True, check=False)

    @staticmethod
    def _run(*commands: str) -> None:
        for command in commands:
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{command}: {done.stderr}"


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network()
    yield network
    network.remove()


def accepted(run: Path) -> dict[int, str]:
    query = "SELECT assignment, digest FROM contributions WHERE verdict = 'accepted'"
    with closing(sqlite3.connect(f"{(run / 'ledger.sqlite').as_uri()}?mode=ro", uri=True)) as connection:
        return dict(connection.execute(query).fetchall())


IN_STEP = re.compile(r"row [\d,]+, [0-9] rows .*; can take over\n(?!row)")
"""The newest word of a standby whose copy is complete, and at most 9 rows behind."""


def more(run: Path, number: int) -> Callable[[str], bool]:
    """Whether the controller has accepted `number` more contributions there than now."""
    before = len(accepted(run))
    return lambda text: len(accepted(run)) >= before + number


@pytest.mark.campaign
def test_a_cut_replaces_the_controller_only_where_most_workers_have_lost_it(
    barnraise, run_file, network: Network, tmp_path: Path
) -> None:
    path = run_file(
        workers=[],
        training={"tokens": 10**9, "batch_size": 4, "local_steps": 40},
        controller={"host": network.addresses["controller"], "evaluations": 1, "evaluation_rows": 16}
        | {"standby_lease": 2.0, "checkpoint_seconds": 5.0},
    )
    serve = barnraise("serve", str(path), prefix=network.inside("controller"))
    serve.wait_for(lambda text: "barnraise join" in text)
    run = next((tmp_path / "runs").iterdir())
    invite = barnraise("invite", str(run), "--standby")
    assert invite.wait() == 0
    ticket = tmp_path / "ticket"
    ticket.write_text(invite.out.read_text())
    standby = barnraise("standby", f"@{ticket}", "--dir", str(tmp_path / "copies"), prefix=network.inside("standby"))
    copy = tmp_path / "copies" / run.name
    home = str(tmp_path / "home")
    joins = [
        barnraise(
            "join", f"@{run / 'keys' / 'invite'}", "--name", name, "--threads", "1", "--home", home,
            prefix=network.inside(name),
        )
        for name in ("north", "south")
    ]  # fmt: skip
    standby.wait_for(lambda text: "can take over" in text)
    serve.wait_for(lambda text: "2 live" in text)
    serve.wait_for(more(run, 4))

    network.divide("controller north south", "standby")
    standby.wait_for(lambda text: "listening to its workers" in text)
    serve.wait_for(more(run, 8))
    network.heal()
    standby.wait_for(lambda text: "answers again" in text)

    network.divide("controller north", "standby south")  # exactly half on each side
    standby.wait_for(lambda text: "1 of 2 workers have come, 2 are wanted" in text)
    serve.wait_for(more(run, 8))
    network.heal()
    standby.wait_for(lambda text: text.count("answers again") == 2)
    assert "taking over" not in standby.text()
    kept = accepted(run)
    serve.wait_for(lambda text: accepted(copy).items() >= kept.items())
    standby.wait_for(lambda text: IN_STEP.search(text, text.rindex("answers again")))

    network.divide("controller", "standby north south")
    standby.wait_for(lambda text: "taking over" in text)
    standby.wait_for(more(copy, 8))
    before, after = accepted(run), accepted(copy)
    assert after.items() >= kept.items()
    lost = [number for number, digest in before.items() if after.get(number) != digest]
    assert not lost or min(lost) > max(kept)  # accepted, and not copied before the cut
    assert serve.popen.poll() is None
    network.heal()
    assert serve.wait(120) == 1, serve.text()
    assert "has taken over" in serve.text()
    assert not [join.text() for join in joins if join.popen.poll() is not None]
    os.kill(standby.popen.pid, signal.SIGINT)
    assert standby.wait(60) in (0, 130), standby.text()
