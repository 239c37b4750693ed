"""Measure the cost of a heartbeat for the controller: processor time of a real `barnraise serve`, by transport.

    python benchmarks/heartbeats.py [--nodes 50] [--pace 10] [--seconds 6] [--rounds 3]

Scripted nodes join over real sockets, and then send heartbeats only: each round at a tenth of the pace, and at the
pace. The benchmark reads the controller's processor time from the system, so that other processes disturb it little.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import psutil

from barnraise.transport import Invite
from barnraise.wire.messages import Heartbeat

sys.path.append(str(Path(__file__).parents[1]))  # the intrusion kit is under tests/
from tests.intrude.kit.member import Member
from tests.intrude.kit.scene import by_door
from tests.intrude.kit.ways import WAYS

JOIN_SECONDS = 0.1
"""Seconds between two joins: the controller defers nodes when more than 20 a second join from one address."""


def served(folder: Path, nodes: int) -> tuple[subprocess.Popen[bytes], Invite]:
    """A controller of a tiny model, and an invite to its run."""
    (folder / "text.txt").write_text("barnraise " * 4000)
    run = {
        "run": {"name": "heartbeats", "dir": str(folder / "runs")},
        "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
        "data": {"kind": "text", "files": [str(folder / "text.txt")], "tokenizer": "bytes", "context": 64},
        "workers": [],
        "training": {"tokens": 10**12, "batch_size": 4, "local_steps": 2, "learning_rate": 0.001},
        "controller": {"http_port": 0, "evaluation_rows": 16},
    }
    (folder / "run.yaml").write_text(json.dumps(run))
    log = folder / "serve.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "barnraise.cli.main", "serve", str(folder / "run.yaml"), "--uses", str(2 * nodes)],
            stdout=out, stderr=out,
        )  # fmt: skip
    while not (found := re.search(r"barnraise join '@(.+)'", log.read_text())):
        if process.poll() is not None:
            sys.exit(log.read_text())
        time.sleep(0.1)
    return process, Invite.parse(Path(found[1]).read_text(), time.time())


async def measure(controller: psutil.Process, invite: Invite, way: str, options: argparse.Namespace) -> None:
    def spent() -> float:
        times = controller.cpu_times()
        return float(times.user + times.system)

    async with AsyncExitStack() as stack:
        members = []
        for number in range(options.nodes):
            member = Member(f"{way}-{number}", by_door(invite, way), random.Random(number))
            await stack.enter_async_context(member)
            if not await member.join():
                sys.exit("a node was not let in")
            members.append(member)
            await asyncio.sleep(JOIN_SECONDS)
        for pace in (options.pace / 10.0, options.pace) * options.rounds:
            before, began, sent = spent(), time.monotonic(), 0
            while (passed := time.monotonic() - began) < options.seconds:
                for member in members:
                    await member.send(Heartbeat(time.monotonic()))
                sent += len(members)
                await asyncio.sleep(max(0.0, sent / (options.nodes * pace) - passed))
            passed, took = time.monotonic() - began, spent() - before
            each = 1000.0 * took / sent
            print(f"{way}: {sent / passed:.0f} heartbeats/s take {took / passed:.1%} of a core, {each:.2f} ms each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--pace", type=float, default=10.0, help="heartbeats a second of each node")
    parser.add_argument("--seconds", type=float, default=6.0, help="of a measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        options.nodes, options.seconds, options.rounds = 4, 1.0, 1
    with tempfile.TemporaryDirectory(prefix="heartbeats-") as folder:
        process, invite = served(Path(folder), options.nodes)
        try:
            for way in WAYS:
                asyncio.run(measure(psutil.Process(process.pid), invite, way, options))
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
