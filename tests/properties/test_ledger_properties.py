"""Any sequence of decisions, committed in any groups, by any number of processes, comes back as it was."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from barnraise.core.types import NodeProfile, ParameterRange, RowRange
from barnraise.ledger import (
    Assigned,
    Change,
    Claim,
    Decision,
    Judged,
    Ledger,
    LedgerHash,
    NodeChanged,
    Noted,
    Terms,
    VersionClosed,
    VersionMade,
    Weighing,
)
from barnraise.ledger.notes import Evaluated, Note, Unknown, kind_of

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # hundreds of commits: spare the disk

counts = st.integers(0, 2**53)
floats = st.floats().map(lambda value: math.nan if math.isnan(value) else value + 0.0)  # one NaN, no -0.0
finite = st.floats(0, 1e12).map(lambda value: value + 0.0)
texts = st.text(max_size=40)
json = st.recursive(
    st.none() | st.booleans() | counts | finite | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
ranges = st.builds(ParameterRange, counts, counts) | st.lists(counts, min_size=4, max_size=8).map(tuple)
rows = st.lists(st.builds(RowRange, counts, counts, counts), max_size=5).map(tuple)
profiles = st.builds(
    NodeProfile,
    tokens_per_second=finite,
    memory_bytes=counts,
    cores=counts,
    device=texts,
    up_bytes_per_second=finite,
    down_bytes_per_second=finite,
    latency_seconds=finite,
)

nodes = st.builds(
    NodeChanged,
    time=floats,
    node=texts,
    change=st.sampled_from(Change),
    reason=texts,
    key=texts,
    session=counts,
    profile=st.none() | profiles,
)
assignments = st.builds(
    Assigned,
    time=floats,
    assignment=counts,
    node=texts,
    kind=texts,
    base=counts,
    tokens=counts,
    local_steps=counts,
    rows=rows,
    cursor=counts,
    terms=st.builds(Terms, counts, floats, ranges, counts),
    redo=counts,
)
contributions = st.builds(
    Judged,
    time=floats,
    assignment=st.integers(0, 50),
    node=texts,
    verdict=st.sampled_from(["accepted", "refused", "discarded"]),
    reason=texts,
    claim=st.builds(Claim, counts, counts, floats, floats, counts, texts, st.integers(-1, 20)),
    version=counts,
    staleness=counts,
    tokens=counts,
    norm=floats,
    parameters=ranges,
    weighing=st.builds(Weighing, floats, floats, st.none() | finite),  # no number there would be read as none
)
closed = st.builds(
    VersionClosed,
    time=floats,
    version=st.integers(0, 20),
    contributions=st.lists(counts, max_size=5).map(tuple),
    num_nodes=counts,
    tokens=counts,
    reason=texts,
)
made = st.builds(VersionMade, time=floats, version=st.integers(0, 20), digest=texts, delta_bytes=counts)
KINDS = {kind_of(note) for note in Note.__subclasses__()}
unknown = st.builds(Unknown, texts.filter(lambda kind: kind not in KINDS), st.dictionaries(texts, json, max_size=4))
known = st.builds(Evaluated, counts, st.none() | st.floats(allow_nan=False, allow_infinity=False), counts)
events = st.builds(Noted, time=floats, note=unknown | known, node=texts)

groups = st.lists(
    st.lists(nodes | assignments | contributions | closed | made | events, max_size=12), min_size=1, max_size=6
)


def admissible(decisions: list[Decision], seen: set[tuple[str, int]]) -> list[Decision]:
    """Return the decisions that a controller may make.

    It assigns once, accepts once, closes a version once, and then makes the version once.
    """
    kept = []
    for decision in decisions:
        match decision:
            case Assigned(assignment=number):
                fact, needs = ("assigned", number), None
            case Judged(assignment=number, verdict="accepted"):
                fact, needs = ("accepted", number), None
            case VersionClosed(version=number):
                fact, needs = ("closed", number), None
            case VersionMade(version=number):
                fact, needs = ("made", number), ("closed", number)
            case _:
                kept.append(decision)
                continue
        if fact not in seen and (needs is None or needs in seen):
            seen.add(fact)
            kept.append(decision)
    return kept


def payloads_of(decisions: list[Decision]) -> dict[int, bytes]:
    return {
        item.assignment: msgspec.msgpack.encode(item) for item in decisions if isinstance(item, Judged) and item.brings
    }


@settings(max_examples=40)
@given(groups=groups, reopen=st.booleans(), data=st.data())
def test_any_sequence_round_trips_in_order(groups: list[list[Decision]], reopen: bool, data: st.DataObject) -> None:
    seen: set[tuple[str, int]] = set()
    batches = [admissible(group, seen) for group in groups]
    everything = [decision for batch in batches for decision in batch]
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "ledger.sqlite"
        ledger = Ledger(path)
        for batch in batches:
            ledger.commit(batch, payloads_of(batch))
            if reopen:
                ledger.close()
                ledger = Ledger(path)
        with ledger:
            replayed = list(ledger.replay())
            assert [row_id for row_id, _ in replayed] == list(range(1, len(everything) + 1))
            assert repr([decision for _, decision in replayed]) == repr(everything)
            assert ledger.compute_hash() == LedgerHash(everything).hexdigest()
            start = data.draw(st.integers(0, len(everything)))
            assert repr(list(ledger.replay(start))) == repr(replayed[start:])
            for assignment, payload in payloads_of(everything).items():
                assert ledger.read(assignment) == payload
