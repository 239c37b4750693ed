"""The file with the folded account: it saves work, and whatever is wrong with it costs no more than that."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from barnraise.account import account, cache
from barnraise.account.account import AccountReader, behind, read
from barnraise.account.run_status import RunStatus
from barnraise.assembly.account_keeper import AccountKeeper
from barnraise.ledger import Decision, Judged, Ledger, LedgerView, Noted, RunDirectory, notes, seal
from barnraise.verification.files import FilesCheck
from barnraise.verification.verify import verify

from ... import decisions as some
from ..cli.test_status import BEGINNING, END, make_run

MORE: list[Decision] = [some.judged(9.0, 2, "a", tokens=300, base=1), Noted(9.5, notes.Traffic(up=5000, down=6000))]
OTHER: list[Decision] = [some.judged(9.2, 2, "a", tokens=777, base=1), Noted(9.6, notes.Traffic(up=1, down=2))]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return make_run(tmp_path, BEGINNING)


def commit(run: RunDirectory, decisions: list[Decision]) -> None:
    payloads = {row.assignment: b"p" for row in decisions if isinstance(row, Judged) and row.brings}
    with Ledger(run.ledger, run.segments) as ledger:
        ledger.commit(decisions, payloads)


def keep(run: RunDirectory) -> bytes:
    """Write the cache file of the ledger as it is; its bytes."""
    with AccountReader(run) as reader:
        reader.advance()
        reader.keep()
    return run.account_cache.read_bytes()


def taken(run: RunDirectory) -> int:
    """How many rows a reader takes from the file, and need not read."""
    with AccountReader(run) as reader:
        return reader.rows


def lie(run: RunDirectory, change: Callable[[cache.Cached], cache.Cached], tokens: int = 123_456) -> None:
    """Write `tokens` trained tokens into the file, with another change that tells it from a sound one."""
    with LedgerView(run.ledger) as view:
        found = cache.load(run, view)
        assert found is not None
        folded, rows = found
        folded.tallies.work["a"].tokens = tokens
        cache.save(run, view, folded, rows)
    content = run.account_cache.read_bytes()[len(cache._MAGIC) + cache._DIGEST_BYTES :]
    body = msgspec.msgpack.encode(change(msgspec.msgpack.decode(content, type=cache.Cached)))
    run.account_cache.write_bytes(cache._MAGIC + hashlib.sha256(body).digest() + body)


def test_a_reader_begins_where_the_file_ends(run: RunDirectory) -> None:
    keep(run)
    assert taken(run) == len(BEGINNING)
    lie(run, lambda cached: cached)
    assert read(run).totals.tokens == 123_456, "a file that fits is what counts: the tests below stand on that"
    keep(run)
    commit(run, MORE)
    assert read(run).totals.tokens == 123_456 + 300
    run.account_cache.unlink()
    assert read(run).totals.tokens == 700


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda cached: msgspec.structs.replace(cached, run="another"), id="other run"),
        pytest.param(lambda cached: msgspec.structs.replace(cached, form="9" + cached.form[1:]), id="other version"),
        pytest.param(lambda cached: msgspec.structs.replace(cached, form=cached.form[:-1] + "x"), id="other fields"),
        pytest.param(lambda cached: msgspec.structs.replace(cached, rows=cached.rows - 1), id="fewer rows"),
        pytest.param(lambda cached: msgspec.structs.replace(cached, rows=cached.rows + 9), id="shorter ledger"),
        pytest.param(lambda cached: msgspec.structs.replace(cached, rows=-1), id="no number of rows"),
        pytest.param(lambda cached: msgspec.structs.replace(cached, rows=2**63), id="a number that SQLite has not"),
        pytest.param(lambda cached: msgspec.structs.replace(cached, mark="00" * 32), id="other rows"),
        pytest.param(lambda cached: msgspec.structs.replace(cached, folded=msgspec.Raw(b"\x01")), id="no account"),
    ],
)
def test_a_file_that_does_not_fit_is_ignored(run: RunDirectory, change: Callable[[cache.Cached], cache.Cached]) -> None:
    keep(run)
    lie(run, change)
    assert taken(run) == 0
    assert read(run).totals.tokens == 400


def test_no_byte_of_it_can_change_unnoticed(run: RunDirectory) -> None:
    content = keep(run)
    for place in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        run.account_cache.write_bytes(flipped)
        assert taken(run) == 0
    for size in (0, 10, len(content) // 2, len(content) - 1):
        run.account_cache.write_bytes(content[:size])
        assert taken(run) == 0
    run.account_cache.write_bytes(content)
    assert taken(run) == len(BEGINNING)


@pytest.mark.parametrize("chained", [True, False])
def test_a_folder_that_was_continued_from_an_older_copy_is_not_misread(run: RunDirectory, chained: bool) -> None:
    """The ledger goes back to the copy, and takes other rows, of the same number and more."""
    copy = run.ledger.with_name("copy")
    shutil.copy(run.ledger, copy)
    commit(run, MORE)
    unchained(run.ledger, chained)
    keep(run)
    assert taken(run) == len(BEGINNING) + len(MORE)
    shutil.copy(copy, run.ledger)
    assert taken(run) == 0, "the ledger is shorter"
    shutil.rmtree(run.segments)
    with Ledger(run.ledger, run.segments) as ledger:
        ledger._durable = ledger.segments.append({})
        ledger.commit(OTHER, {2: b"p"})
    unchained(run.ledger, chained)
    assert taken(run) == 0, "the ledger is as long, but has other rows"
    assert (read(run).totals.tokens, read(run).traffic.up) == (400 + 777, 1)


def unchained(ledger: Path, chained: bool) -> None:
    """As if the ledger were from before there was a chain."""
    if not chained:
        with closing(sqlite3.connect(ledger)) as connection:
            connection.execute("DELETE FROM chain")
            connection.commit()


def test_an_old_ledger_has_a_cache_too(run: RunDirectory) -> None:
    with closing(sqlite3.connect(run.ledger)) as connection:
        connection.execute("DROP TABLE chain")
        connection.execute("ALTER TABLE contributions DROP COLUMN codec")
        connection.execute("ALTER TABLE assignments DROP COLUMN compute")
    before = read(run)
    keep(run)
    assert taken(run) == len(BEGINNING)
    assert repr(read(run)).replace(repr(before.run), "") == repr(before).replace(repr(before.run), "")
    commit(run, MORE)  # which adds the columns
    assert read(run).totals.tokens == 700


def test_a_folder_that_cannot_be_written_to_is_read(run: RunDirectory) -> None:
    (run.path / ".account.cache.unfinished").mkdir()  # root cannot write that either
    with AccountReader(run) as reader:
        reader.advance()
        reader.keep()
        assert reader.read().totals.tokens == 400
    assert not run.account_cache.exists()
    run.account_cache.mkdir()
    assert taken(run) == 0


def test_one_process_writes_it_at_a_time(run: RunDirectory) -> None:
    before = keep(run)
    commit(run, MORE)
    unfinished = run.path / ".account.cache.unfinished"
    with unfinished.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert keep(run) == before, "left to the other process"
    assert keep(run) != before, "what a process left behind that was killed is no obstacle"
    assert not unfinished.exists()
    assert os.stat(run.account_cache).st_mode & 0o777 == 0o600


def test_it_is_sealed_nowhere_and_verification_names_it(run: RunDirectory) -> None:
    commit(run, END)
    put = seal.put(run)
    keep(run)
    (run.path / ".account.cache.unfinished").write_bytes(b"half of one")
    assert seal.put(run) == put
    certificate = verify(run, [FilesCheck()])
    (part,) = certificate.parts
    assert [finding.file for finding in part.findings if "cache" in finding.file] == []
    left = {one.what: one.why for one in part.unchecked}
    assert "no part of the evidence" in left["account.cache"]
    assert ".account.cache.unfinished" in left


@pytest.fixture
def long(run: RunDirectory) -> Iterator[Ledger]:
    """A ledger that is long enough to be worth a file."""
    with Ledger(run.ledger, run.segments) as ledger:
        ledger.commit([Noted(9.0, notes.Traffic(up=number, down=number)) for number in range(account.LEAST_KEPT)])
        yield ledger


def test_short_ledgers_need_none_and_long_ones_are_kept_up_with(run: RunDirectory, long: Ledger) -> None:
    assert behind(10) == account.LEAST_KEPT < behind(3_000_000) == 30_000
    with AccountReader(run) as reader:
        reader.advance()
        first = run.account_cache.read_bytes()
        long.commit(list(END))
        reader.advance()
        assert run.account_cache.read_bytes() == first
        assert reader.read().finished == "SIGINT"
    assert taken(run) == long.last_id - len(END)


def test_a_short_ledger_has_no_file(run: RunDirectory) -> None:
    read(run)
    assert not run.account_cache.exists()


def test_a_controller_keeps_it_while_it_works(run: RunDirectory, long: Ledger) -> None:
    async def work() -> bytes:
        keeper = AccountKeeper(run, 1000)
        task = asyncio.ensure_future(keeper.keep_cache(long, every=0.0))
        async with asyncio.timeout(60.0):
            while not run.account_cache.exists():
                await asyncio.sleep(0)
        task.cancel()
        told = await asyncio.to_thread(keeper.status)
        keeper.close()
        return told

    told = msgspec.json.decode(asyncio.run(work()), type=RunStatus)
    assert (told.state, told.progress, told.told["bytes_up"]) == ("running", 0.4, account.LEAST_KEPT - 1)
    assert taken(run) == long.last_id
