"""Measure how long a resume of a long run takes: a million contributions, with the real machine, ledger and server.

    python benchmarks/resume.py [--contributions 1000000]

The run's history is written first, as fast as it goes (minutes): nodes that answer at once, payloads of a tiny model.
It ends as after a crash, some way after its last checkpoint. Then it is folded from its checkpoint's state and, to
compare, as a whole; its hash chain is checked, as by a standby that opens its copy; and `barnraise resume` is started,
which accepts work once it has answered a worker's greeting.
Target: accepts work in <= 3 s.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import torch

from barnraise import compression
from barnraise.assembly.addresses import listen, recorded_uri
from barnraise.assembly.hosting import Host, open_host
from barnraise.assembly.preparing import prepare
from barnraise.config import load
from barnraise.controller.state import actions as act
from barnraise.controller.state import effects, saved
from barnraise.controller.state import events as ev
from barnraise.controller.tensors.recovery import replay
from barnraise.core.errors import BarnraiseError
from barnraise.core.types import KINDS, Blob, Contribution, NodeProfile, Train
from barnraise.ledger import Checkpoints, Decision, Judged, Ledger, Noted, RunDirectory, chain, notes
from barnraise.ledger.view import connect_read_only
from barnraise.plan import Plan, Purpose, resolve
from barnraise.transport import Keys
from barnraise.transport.zmq.simple import SimpleClient
from barnraise.wire.messages import PROTOCOL_VERSION, Assign, Hello, Offer, RequestTask

BARNRAISE = [sys.executable, "-m", "barnraise.cli.main"]
NODES = 64
COMMIT = 2000  # decisions
BETWEEN_CHECKPOINTS = 100  # versions, a second each


def plan_of(folder: Path) -> Plan:
    (folder / "text.txt").write_text("once upon a time there was a barn\n" * 100)
    content = {
        "run": {"name": "long", "dir": str(folder)},
        "model": {"architecture": "gpt2", "config": {"hidden_size": 8, "num_layers": 1, "num_heads": 1}},
        "data": {"kind": "text", "files": [str(folder / "text.txt")], "context": 16},
        "controller": {
            "buffer_size": NODES,
            "checkpoint_seconds": BETWEEN_CHECKPOINTS,
            "evaluations": 20,
            "lease": 3600,
            "max_update_norm": 1e6,
        },
        "training": {
            "tokens": 10**12,
            "batch_size": 1,
            "local_steps": 1,
            "compression": "topk",
            "auto_tune": False,
            "loss_gate": 0,
        },
    }
    return resolve(load(content), purpose=Purpose.SERVE)


class History:
    """A host that executes the actions of the machine at once; a second passes with each version."""

    def __init__(self, host: Host, wanted: int) -> None:
        self.host, self.wanted, self.now = host, wanted, 0.0
        self.keys = [Keys.generate() for _ in range(NODES)]
        self.server, self.checkpoints = host.server.executor.server, host.server.executor.checkpoints
        encoded = compression.create("topk", **dict(host.plan.compression.options)).encode(
            torch.randn(host.exchange.exchanged, generator=torch.Generator().manual_seed(0)) * 1e-3
        )
        self.payload = encoded.to_bytes()
        self.blob = Blob(hashlib.sha256(self.payload).hexdigest(), encoded.num_bytes)
        self.decisions: list[Decision] = []
        self.events: deque[ev.Event] = deque()
        self.tasks: deque[tuple[str, Train]] = deque()

    def write(self) -> None:
        self.take(self.host.first)
        for index, keys in enumerate(self.keys):
            name = f"n{index:02}"
            self.do(ev.Admitted(name, keys.public))
            self.do(ev.Received(name, Hello(PROTOCOL_VERSION, 1, 1, NodeProfile(1000.0), -1, kinds=tuple(KINDS))))
            self.do(ev.Received(name, RequestTask(-1)))
        while self.host.machine.state.totals.accepted < self.wanted:
            node, task = self.tasks.popleft()
            offer = Contribution.of(task, self.blob, codec=task.rung, steps=task.local_steps, loss=2.0, seconds=0.5)
            self.do(ev.Received(node, Offer(offer)))
            self.do(ev.Received(node, RequestTask(self.host.machine.state.newest.version)))
        self.commit()

    def do(self, event: ev.Event) -> None:
        self.events.append(event)
        while self.events:
            self.take(self.host.machine.handle(self.events.popleft(), self.now))

    def take(self, actions: list[act.Action]) -> None:
        machine = self.host.machine
        for action in actions:
            match action:
                case act.Journal(decision):
                    self.decisions.append(decision)
                    if isinstance(decision, Noted) and isinstance(decision.note, notes.Checkpointed):
                        self.commit()
                        oldest = self.checkpoints.prune(2)[0].manifest.version
                        ledger = self.host.ledger
                        needed = [number for ids in ledger.merged(oldest).values() for number in ids]
                        ledger.segments.retain([*needed, *machine.state.merging])
                case act.Send(node, Assign(task)):
                    self.tasks.append((node, task))
                case act.Receive(node, contribution):
                    size = contribution.payload.num_bytes
                    self.events.append(ev.Arrived(node, contribution.assignment, size))
                case effects.Inspect(epoch, _, contribution):
                    self.events.append(effects.Inspected(epoch, contribution.assignment, 1.0, ""))
                case effects.Aggregate():
                    self.now += 1.0
                    made = self.server.aggregate(
                        action.version, action.slots, lambda number: self.payload, action.rate, action.scales
                    )
                    done = effects.Aggregated(action.epoch, made.version, made.digest, made.delta, made.parameters)
                    self.events.append(done)
                case effects.Evaluate(epoch, version):
                    self.events.append(effects.Evaluated(epoch, version, 2.0))
                case effects.Checkpoint(epoch, version):
                    self.commit()
                    self.checkpoints.save(
                        version,
                        ledger_id=self.host.ledger.last_id,
                        parameters_digest=self.server.digest,
                        state=saved.encode(machine.state, self.now),
                        tensors={"parameters": self.server.state()},
                    )
                    self.events.append(effects.Checkpointed(epoch, version))
        if len(self.decisions) >= COMMIT:
            self.commit()

    def commit(self) -> None:
        accepted = (d.assignment for d in self.decisions if isinstance(d, Judged) and d.verdict == "accepted")
        self.host.ledger.commit(self.decisions, dict.fromkeys(accepted, self.payload))
        self.decisions.clear()


def accepts_work(run: RunDirectory, keys: Keys) -> float:
    """Seconds from the start of `barnraise resume` until it has welcomed a worker."""
    controller = Keys.load(run.keys / "controller.json")
    with (run.logs / "resume.log").open("ab") as log:
        began = time.monotonic()
        process = subprocess.Popen([*BARNRAISE, "resume", str(run.path)], stdout=log, stderr=log)
    try:
        while process.poll() is None:
            with SimpleClient(recorded_uri(run).split()[0], controller.public, keys, seconds=0.1) as client:
                try:
                    client.hello(NodeProfile())
                    return time.monotonic() - began
                except BarnraiseError:
                    continue
        raise SystemExit((run.logs / "resume.log").read_text())
    finally:
        process.kill()
        process.wait()


def timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def history(folder: Path, contributions: int) -> tuple[RunDirectory, Plan, Keys]:
    """Make a run with the given number of contributions, as a crash leaves it, and a node's key."""
    plan = plan_of(folder)
    run = RunDirectory.create("long", folder)
    prepare(plan, run, lambda text: None)
    host = open_host(run, plan, print)
    past = History(host, contributions)
    past.write()

    async def listened() -> None:
        await listen(host.server, run, plan, "serve")
        await host.close()

    asyncio.run(listened())
    return run, plan, past.keys[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contributions", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        options.contributions, options.repeats = 10_000, 1
    print(f"{'':34}{'a short run':>14}{'a long run':>14}")
    found: list[dict[str, str]] = []
    for contributions in (NODES, options.contributions):
        with tempfile.TemporaryDirectory() as name:
            run, _, keys = history(Path(name), contributions)
            ledger = Ledger(run.ledger, run.segments)
            from_checkpoint = timed(lambda: replay(ledger, Checkpoints(run.checkpoints)))  # noqa: B023
            whole = timed(lambda: replay(ledger))  # noqa: B023
            rows = ledger.last_id
            ledger.close()
            with closing(connect_read_only(run.ledger)) as connection:
                chained = timed(lambda: chain.checked(connection))
            seconds = [accepts_work(run, keys) for _ in range(options.repeats)]
            found.append(
                {
                    "contributions": f"{contributions:,}",
                    "rows of the ledger": f"{rows:,}",
                    "MB of the ledger": f"{run.ledger.stat().st_size / 1e6:,.0f}",
                    "s to fold all rows": f"{whole:.2f}",
                    "s to check their hash chain": f"{chained:.2f}",
                    "s to fold those after a checkpoint": f"{from_checkpoint:.2f}",
                    "s until resume accepts work": f"{statistics.median(seconds):.2f}",
                    "  the longest (target <= 3)": f"{max(seconds):.2f}",
                }
            )
    for label in found[0]:
        print(f"{label:34}{found[0][label]:>14}{found[1][label]:>14}")


if __name__ == "__main__":
    main()
