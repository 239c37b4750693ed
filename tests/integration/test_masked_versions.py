"""A masked run of a real controller, workers and trustees: its versions are those of the ring without masks."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from zmq.utils import z85

from barnraise.account.account import manifest
from barnraise.assembly import parts
from barnraise.assembly.addresses import listen
from barnraise.assembly.hosting import open_host
from barnraise.assembly.preparing import prepare
from barnraise.config.load import load
from barnraise.controller.state.events import Admitted
from barnraise.controller.tensors.recovery import Replayed
from barnraise.controller.tensors.recovery import replay as folded
from barnraise.controller.tensors.stages.base import Sum
from barnraise.controller.tensors.unmasker import Whole
from barnraise.core.types import Seat
from barnraise.ledger import Judged, Ledger, RunDirectory
from barnraise.plan.purpose import SERVE
from barnraise.plan.resolve import Plan, resolve
from barnraise.privacy.masking.expand import add_streams
from barnraise.privacy.masking.lists import groups_of
from barnraise.privacy.masking.payload import MaskedUpdate, UpdateOrigin, parse, plain
from barnraise.privacy.masking.sealing import SealingKey
from barnraise.privacy.masking.seats import committee_of
from barnraise.privacy.masking.sums import GroupSums
from barnraise.privacy.masking.terms import MaskTerms
from barnraise.transport import Keys
from barnraise.transport.identity import hexadecimal
from barnraise.trust.roles import TRUSTEE, WORKER
from barnraise.trust.signatures import RunId
from barnraise.worker.machine import Worker
from barnraise.worker.options import WorkerOptions
from barnraise.worker.runtime import WorkerRuntime
from barnraise.worker.trustee import machine_of, preparation

from .test_report import MODEL

WORKERS, TRUSTEES = ("ann", "bob", "cat", "dan"), ("t1", "t2", "t3", "t4")


def planned(folder: Path, rule: str, group: Any) -> Plan:
    (folder / "text.txt").write_text("a barn is raised by many hands.\n" * 200)
    content: dict[str, Any] = {
        "run": {"name": "barn"},
        "model": MODEL,
        "data": {"kind": "text", "files": [str(folder / "text.txt")], "context": 32},
        "controller": {"buffer_size": 4, "evaluation_rows": 8, "keep_payloads": True},
        "training": {
            "tokens": 9_000, "batch_size": 4, "local_steps": 4, "learning_rate": 0.003, "auto_tune": False,
            "compression": "none", "aggregation_rule": rule,
        },
        "privacy": {"secure_aggregation": {"trustees": 4, "colluding": 1, "group": group}},
    }  # fmt: skip
    return resolve(load(content), purpose=SERVE, nodes=4)


async def play(run: RunDirectory, plan: Plan) -> tuple[dict[str, Keys], RunId]:
    """Play the run to its end, with controller, workers and trustees in one process; return the trustees' keys."""
    host = open_host(run, plan, lambda text: None)
    uri = await listen(host.server, run, plan, "serve")
    keys = {name: Keys.generate() for name in (*TRUSTEES, *WORKERS)}

    async def work(name: str) -> None:
        role = TRUSTEE if name in TRUSTEES else WORKER
        options = WorkerOptions(uri, host.server.enrolment.keys.public, name, keys[name], run.path / name)
        steps = preparation(role, run.path / f"trustee-{name}")
        await WorkerRuntime(options, prepare=steps, machine=machine_of(role, Worker)).run()

    for name, pair in keys.items():
        role = TRUSTEE if name in TRUSTEES else WORKER
        host.server.post(Admitted(name, pair.public, signer=pair.signer.public, role=role))
    serving = asyncio.ensure_future(host.server.run(host.first))
    try:
        async with asyncio.timeout(120):
            while len(host.machine.state.nodes) < len(keys):
                await asyncio.sleep(0.01)
            workers = [asyncio.ensure_future(work(name)) for name in keys]
            await serving
            await asyncio.gather(*workers)
        return keys, host.machine.settings.run
    finally:
        await host.close()


def revealed(update: MaskedUpdate, origin: UpdateOrigin, keys: dict[str, Keys]) -> Any:
    """Return the words of an update without its masks, whose seeds two of the trustees know together."""
    committee, seeds = update.terms.committee, dict[int, bytes]()
    assert committee is not None
    for number in range(committee.collude + 1):
        sealing = SealingKey(z85.decode(keys[committee.trustees[number].name].secret))
        opened = sealing.open(update.shares[number], update.terms.binding(*origin), number)
        seeds |= dict(zip(committee.known[number], opened, strict=True))
    words = update.read()
    add_streams(words, [seeds[seed] for seed in range(len(committee.subsets))], update.terms.ring.mask, subtract=True)
    return words


class RingRun:
    """The versions of a run made again, of the updates of its ledger in the ring without masks."""

    def __init__(self, run: RunDirectory, plan: Plan, ledger: Ledger, keys: dict[str, Keys], known: RunId) -> None:
        self.keys, self.ledger, self.history = keys, ledger, folded(ledger)
        told = manifest(run)
        exchange = plan.exchange(told.model, told.exchange)
        self.server = parts.parameter_server(plan, torch.zeros(1), exchange)
        self.server.load(parts.initial_state(plan, told.model, exchange, run.data), 0)
        assert plan.masking is not None
        blank = plan.masking.terms(exchange.exchanged)
        seats = tuple(Seat(name, hexadecimal(keys[name].public), keys[name].signer.public) for name in TRUSTEES)
        self.masked = replace(blank, run=known, committee=committee_of(seats, 1))
        self.ring: MaskTerms = replace(self.masked, committee=None)
        judged = [one for _, one in ledger.replay() if isinstance(one, Judged)]
        self.origins = {
            one.assignment: UpdateOrigin(one.node, one.assignment, one.claim.base, self.history.digests[one.claim.base])
            for one in judged
            if one.verdict == "accepted" and one.claim.result == "update"
        }

    def sums(self, version: int, group: int) -> list[Sum]:
        slots = self.history.slots[version]
        numbers = [slot.contributions[0].assignment for slot in slots]
        updates = [parse(self.ledger.read(number), self.masked) for number in numbers]
        named = zip(numbers, (update.words_digest for update in updates), strict=True)
        groups = groups_of(version, list(named), group)
        total = GroupSums(self.ring, groups)
        for place, (number, update) in enumerate(zip(numbers, updates, strict=True)):
            words = revealed(update, self.origins[number], self.keys)
            total.add(place, parse(plain(self.ring, words), self.ring))
        found = []
        for members, mean in zip(groups, total.means(), strict=True):
            assert not isinstance(mean, str)
            values, weight = mean
            values *= np.float32(weight)
            nodes = [slots[place].node for place in members]
            found.append(Sum(slots[0].parameters, Whole(values), weight, nodes, [0] * len(members), group > 0))
        return found

    def make(self, version: int, group: int) -> str:
        """Make the next version, and return the digest of its parameters."""
        rates = self.history.rates[version]
        return self.server.aggregate(version, (), {}.__getitem__, *rates, self.sums(version, group)).digest


def trained(history: Replayed) -> list[int]:
    return [version for version in sorted(history.digests) if history.masks.get(version)]


@pytest.mark.parametrize(("rule", "group"), [("mean", "all"), ("geometric_median", 2)])
def test_a_masked_run_has_the_versions_of_the_ring_without_masks_bit_for_bit(
    rule: str, group: Any, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    plan, run = planned(tmp_path, rule, group), RunDirectory.create("barn", tmp_path)
    prepare(plan, run, lambda text: None)
    keys, known = asyncio.run(play(run, plan))
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ring = RingRun(run, plan, ledger, keys, known)
        digests = ring.history.digests
        versions = trained(ring.history)
        assert len(versions) >= 3
        assert ring.server.digest == digests[0]
        assert versions == list(range(1, versions[-1] + 1)), "no version was given up"
        assert [ring.make(version, 0 if group == "all" else group) for version in versions] == [
            digests[version] for version in versions
        ]
        assert len(set(digests.values())) == len(digests)
