"""An account that is read row by row: in whatever cuts it is read, it is the one that is read at once."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnraise.account.account import Account, AccountReader, read
from barnraise.config.load import dump, load
from barnraise.core.types import NodeProfile, ParameterRange
from barnraise.ledger import (
    Change,
    Decision,
    Judged,
    Ledger,
    LedgerView,
    NodeChanged,
    Noted,
    RunDirectory,
    VersionClosed,
    VersionMade,
    notes,
)
from barnraise.wire.manifest import Manifest

from .. import decisions as some
from ..unit.cli.test_status import RUN_FILE, Blob

NODES = ("a", "b", "c", "d")

seeds = st.integers(0, 2**32)


class Story:
    """Draws the rows of a run, a few of them of the odd kinds that a crash, a liar or a full disk leaves."""

    def __init__(self, seed: int) -> None:
        self.rng, self.time = random.Random(seed), 0.0
        self.rows: list[Decision] = []
        self.given: dict[int, str] = {}  # open assignments
        self.back: dict[int, str] = {}  # those that were taken back
        self.waiting: list[int] = []  # accepted, and in no version yet
        self.closed: dict[int, tuple[int, ...]] = {}
        self.void: set[int] = set()
        self.number = self.version = self.made = 0

    def of(self, *values: Any) -> Any:
        return self.rng.choice(values)

    def step(self) -> None:
        self.time += self.of(0.0, 0.0, 0.5, 3.0, 3.0, -1.0)  # a clock may be set back
        steps = [self.node, self.assign, self.assign, self.judge, self.judge, self.judge, self.close, self.make]
        steps += [self.release, self.void_one, self.evaluate, self.figures, self.market, self.doubt, self.odd]
        self.rng.choice(steps)()

    def note(self, note: notes.Note, node: str = "") -> None:
        self.rows.append(Noted(self.time, note, node))

    def node(self) -> None:
        change = self.of(*Change)
        profile = self.of(None, NodeProfile(device="cuda"), NodeProfile())
        role = self.of("", "trustee") if change is Change.ENROLLED else ""
        why = self.of("", "why")
        self.rows.append(NodeChanged(self.time, self.of(*NODES), change, why, session=1, profile=profile, role=role))

    def assign(self) -> None:
        self.number += 1
        node = self.of(*NODES)
        self.given[self.number] = node
        told = {
            "compute": self.of(0.0, 1.0, 4.0),
            "compute_spread": self.of(0.0, 0.3),
            "kind": self.of("train", "train"),
        }
        self.rows.append(some.assigned(self.time, self.number, node, tokens=100 + self.number, **told))

    def judge(self) -> None:
        if not self.given:
            return
        number = self.of(*self.given)
        node, verdict = self.given.pop(number), self.of("accepted", "accepted", "accepted", "refused", "discarded")
        fields = {
            "reason": self.of("stale", "too long") if verdict == "refused" else "",
            "digest": self.of("ab" * 32, "ab" * 32, ""),
            "staleness": self.of(0, 1, 7),
            "seconds": self.of(1.5, 2.25, math.nan),
            "signature": self.of("", "cd" * 64),
            "result": self.of("", "update", "update", "unmasked", "vetted", "finding"),
            "parameters": self.of(some.SPAN, ParameterRange(0, 5)),
        }
        judged = some.judged(self.time, number, node, verdict=verdict, tokens=100 + number, **fields)
        self.rows.append(judged)
        if judged.contributes:
            self.waiting.append(number)

    def close(self) -> None:
        if not self.waiting:
            return
        count = self.of(1, 2, len(self.waiting))
        taken, self.waiting = tuple(self.waiting[:count]), self.waiting[count:]
        self.version += 1
        self.closed[self.version] = taken
        tokens = sum(100 + number for number in taken)
        reason = self.of("full", "full", "full", "last")
        self.rows.append(VersionClosed(self.time, self.version, taken, len(taken), tokens, reason))

    def make(self) -> None:
        if self.made < self.version:
            self.made += 1
            self.rows.append(VersionMade(self.time, self.made, "ef" * 32, 40))

    def release(self) -> None:
        if self.back and self.rng.random() < 0.5:
            number = self.of(*self.back)
            self.given[number] = node = self.back.pop(number)
            self.note(notes.Reopened(number), node)
        elif self.given:
            number = self.of(*self.given)
            self.back[number] = node = self.given.pop(number)
            self.note(notes.Released(number, self.of("gone", notes.COPY_CAME_FIRST)), node)

    def void_one(self) -> None:
        """Void a contribution of a version, or one that waits for the next version."""
        numbers = [(version, number) for version, taken in self.closed.items() for number in taken]
        numbers += [(self.version + 1, number) for number in self.waiting]
        if left := [(version, number) for version, number in numbers if number not in self.void]:
            version, number = self.of(*left)
            self.void.add(number)
            self.waiting = [one for one in self.waiting if one != number]
            self.note(notes.Voided(number, version, self.of("lies", "lost"), self.of(True, False)), "a")

    def evaluate(self) -> None:
        version = self.of(0, *range(max(1, self.version - 3), self.version + 1))
        self.note(notes.Evaluated(version, self.of(None, 3.0, 2.5), 10, owners=self.of(0, 2)))

    def figures(self) -> None:
        size = notes.BufferSize(self.of(1, 2), 4, "automatic")
        excluded = notes.Excluded(self.of(self.version, self.version + 1), self.of((), ("a",), ("b", "c")), 0.1)
        file = notes.RunFile("", {"training": {"aggregation_rule": "krum", "aggregation_f": self.of(0, 1)}})
        traffic = notes.Traffic(int(self.time), len(self.rows))
        self.note(self.of(size, excluded, file, traffic, notes.Employed(0.25, 0.5, 8, 2)))

    def market(self) -> None:
        matched = notes.Matched(2, 3, len(self.rows), 3, self.of(0.5, 1.0), 0.75, 0.2, priced=self.of(-1.0, 0.9))
        self.note(self.of(matched, matched, notes.NoMarket("one lane of rows is on offer")))

    def doubt(self) -> None:
        until = self.of(None, self.time + 1.0, self.time + 50.0)
        found = [notes.HeldOff(self.of(2.0, 20.0), "flapping"), notes.Offended(1, 10, "lies", until)]
        self.note(self.of(*found, notes.Convicted(1, (2, 3), until)), self.of(*NODES))

    def odd(self) -> None:
        told = [
            notes.LeftOver(1, "SIGINT"),
            notes.Finished("done"),
            notes.Resumed(self.version, 2),
            notes.Stopping("x"),
        ]
        told += [notes.Audited(1, 2, "a", 0.9, 0.1), notes.Unaudited(1, "old"), notes.Sampled(1.0, 0.1, 2.0, 0.5)]
        told += [notes.Scored(1, 1, 0.1, 0.0, 1.0, True, 0.0), notes.Unknown("struck_by_lightning", {"times": 2})]
        self.note(self.of(*told))


def story_of(seed: int) -> list[Decision]:
    story = Story(seed)
    for _ in range(story.rng.randrange(150)):
        story.step()
    return story.rows


def commits_of(seed: int) -> list[list[Decision]]:
    """The same rows in the commits in which they come."""
    rows, rng = story_of(seed), random.Random(f"cuts {seed}")
    cuts = sorted({0, len(rows), *(rng.randint(0, len(rows)) for _ in range(rng.randrange(8)))})
    return [rows[start:stop] for start, stop in pairwise(cuts)]


@contextmanager
def a_run() -> Iterator[RunDirectory]:
    """A run directory without a ledger."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory.create("barn", Path(folder))
        run.run_file.write_text(dump(load(RUN_FILE)))
        (run.path / "manifest.json").write_bytes(Manifest({"model_type": "gpt2"}, Blob("ab" * 32, 1), 10).encode())
        yield run


def payloads(rows: list[Decision]) -> dict[int, bytes]:
    return {row.assignment: b"p" for row in rows if isinstance(row, Judged) and row.brings}


def fields(account: Account) -> dict[str, Any]:
    """All of it, NaN equal to itself."""
    told = vars(account) | {"run": str(account.run.path)}
    return {name: repr(value) for name, value in told.items()}


@settings(deadline=None, max_examples=40)
@given(seeds)
def test_in_whatever_cuts_an_account_is_read_it_is_the_same(seed: int) -> None:
    with a_run() as run, Ledger(run.ledger, run.segments, run="barn") as ledger, AccountReader(run) as reader:
        for commit in commits_of(seed):
            ledger.commit(commit, payloads(commit))
            assert fields(reader.read()) == fields(read(run))


@settings(deadline=None, max_examples=40)
@given(seeds)
def test_a_process_that_begins_with_the_cache_file_reads_the_same(seed: int) -> None:
    with a_run() as run, Ledger(run.ledger, run.segments, run="barn") as ledger:
        bare = RunDirectory(run.path)
        bare.account_cache = run.path / "none"
        kept = 0
        for commit in commits_of(seed):
            ledger.commit(commit, payloads(commit))
            with AccountReader(run) as reader:
                assert reader.rows == kept, "it goes on where the last one stopped"
                assert fields(reader.read()) == fields(read(bare))
                reader.keep()
                kept = reader.rows


@settings(deadline=None, max_examples=60)
@given(seeds)
def test_an_account_is_what_sql_finds_in_the_whole_ledger(seed: int) -> None:
    rows = story_of(seed)
    with a_run() as run:
        with Ledger(run.ledger, run.segments, run="barn") as ledger:
            ledger.commit(rows, payloads(rows))
        account = read(run)
        with LedgerView(run.ledger) as view:
            assert account.totals == view.totals()
            assert account.nodes == view.nodes()
            assert account.refusals == view.refusals()
            assert list(account.refusals) == list(view.refusals())
            assert account.losses == view.losses()
            assert account.end == view.end
            assert account.traffic == (view.newest(notes.Traffic) or notes.Traffic(0, 0))
            assert account.dispatch.employed == view.newest(notes.Employed)
