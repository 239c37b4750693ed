"""The ledger of a live controller folds again without an error, for all claims and messages of members."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from barnraise.controller.state import events as ev
from barnraise.controller.tensors.recovery import replay
from barnraise.core.types import KINDS, Blob, NodeProfile
from barnraise.wire.messages import PROTOCOL_VERSION, Hello, Leave, Offer, RequestTask

from ..state_machine.engine import contribution, digest
from ..unit.controller.tensors.test_recovery import SIZE, Run, vector
from .test_ledger_properties import MEMORY

rates = st.sampled_from([0.0, 5e-324, 1e-308, 1e-9, 1.0, 1e15]) | st.floats(0.0, 1e15)
seconds = st.sampled_from([0.0, 5e-324, 1e12]) | st.floats(0.0, 1e12)
counts = st.integers(0, 2**53)
profiles = st.builds(
    NodeProfile,
    tokens_per_second=rates,
    memory_bytes=counts,
    cores=counts,
    device=st.text(max_size=120),
    up_bytes_per_second=rates,
    down_bytes_per_second=rates,
    latency_seconds=seconds,
)
claims = st.fixed_dictionaries(
    {
        "loss": st.floats() | st.sampled_from([1e308, -1e308, 5e-324]),
        "seconds": seconds,
        "steps": st.integers(0, 3),
        "codec": st.sampled_from([0, 0, 0, 1, 2, 2**53]),
    }
)
waits = st.sampled_from([0.0, 5e-324, 1e-9, 0.5, 100.0, 1e9])


class Hostile(Run):
    """Nodes that join at any time and upload any content, also content that passes inspection."""

    buffer_size = None
    replaced: dict[int, bytes] = {}

    def join(self, node: str, profile: NodeProfile, session: int) -> None:
        self.greeted.add(node)
        self.handle(ev.Admitted(node, f"key of {node}"))
        held = tuple(task.id for task in self.workers.tasks[node])
        self.handle(ev.Received(node, Hello(PROTOCOL_VERSION, session, 1, profile, 0, (), held, tuple(KINDS))))

    def hand_in(self, node: str, payload: bytes, durable: bytes, claim: dict[str, Any]) -> None:
        if node not in self.greeted:
            return
        self.handle(ev.Received(node, RequestTask(0)))
        if self.workers.tasks[node]:
            task = self.workers.tasks[node].pop(0)
            self.payloads[task.id] = payload
            self.handle(
                ev.Received(node, Offer(contribution(task, payload=Blob(digest(task.id), len(payload)), **claim)))
            )
            self.replaced = {task.id: durable}
            while self.queue:
                self.work()

    def durable(self, number: int, node: str) -> bytes:
        return self.replaced.get(number, self.payloads[number])


@settings(max_examples=25)
@given(data=st.data())
def test_replay_never_raises(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        run = Hostile(Path(folder))
        codec = run.server.codecs[0]
        payloads = [
            bytes(codec.encode(values).payload)
            for values in (vector(1), torch.full((SIZE,), 3e38), torch.full((SIZE,), 1e-45), torch.zeros(SIZE))
        ]
        for _ in range(data.draw(st.integers(1, 60))):
            node = data.draw(st.sampled_from("abcd"))
            run.now += data.draw(waits)
            match data.draw(st.sampled_from(["join", "hand in", "hand in", "hand in", "leave", "tick", "crash"])):
                case "join":
                    run.join(node, data.draw(profiles), data.draw(counts))
                case "hand in":
                    wild = data.draw(st.sampled_from([*payloads, b"", b"\0"]))
                    run.hand_in(node, data.draw(st.sampled_from(payloads)), wild, data.draw(claims))
                case "leave" if node in run.greeted:
                    run.handle(ev.Received(node, Leave("\0" + "x" * 100)))
                case "tick":
                    run.handle(ev.Tick())
                case "crash":
                    run.kill()
                    run = Hostile(Path(folder), run.workers)
            if run.finished:
                break
        state, parameters = run.machine.state, run.server.parameters
        run.kill()
        again = Hostile(Path(folder), run.workers)
        assert torch.equal(again.server.parameters, parameters)
        assert again.machine.state.newest.digest == state.newest.digest
        assert all(
            math.isfinite(node.speed.rate) and node.speed.rate >= 0.0
            for node in replay(again.ledger).state.nodes.values()
        )
        again.kill()
