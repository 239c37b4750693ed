"""Spans of a real ledger, sent to a real collector that answers, refuses, hangs, or is not there."""

from __future__ import annotations

import logging
import socketserver
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from barnraise.account.spans import Spans, ids_of
from barnraise.assembly import tracing
from barnraise.assembly.tracing import MODULE, Otlp, Tracing, installed
from barnraise.ledger import Decision, Ledger, Noted, RunDirectory, VersionClosed, VersionMade, notes

from ..collector import FAILED, collecting, told
from ..decisions import assigned, judged
from ..unit.cli.test_status import BEGINNING, make_run

START = 1_700_000_000.0


def work(first: int, last: int) -> list[Decision]:
    """Rows of contributions, each in a version of its own."""
    return [row for number in range(first, last + 1) for row in (
        assigned(10.0 * number, number, "a", fetch=1.0, send=1.0),
        judged(10.0 * number + 6.0, number, "a", seconds=3.0, num_bytes=1),
        VersionClosed(10.0 * number + 7.0, number, (number,), 1, 400, "full"),
        VersionMade(10.0 * number + 8.0, number, "ab" * 32, 5),
    )]  # fmt: skip


def commit(run: RunDirectory, rows: list[Decision]) -> None:
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ledger.commit(
            rows,
            {number: b"p" for row in rows if (number := getattr(row, "assignment", 0)) and hasattr(row, "verdict")},
        )


def exporting(run: RunDirectory, url: str | None, warn: Callable[[str], None], after: int = 0) -> Tracing:
    made = Tracing(run, Spans("barn"), lambda: Otlp(url, "barn", START), warn, after=after)
    made.start()
    return made


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run directory whose ledger has a beginning; further contributions are from 11 on."""
    return make_run(tmp_path, BEGINNING)


def test_a_collector_gets_the_spans_of_contributions(run: RunDirectory) -> None:
    warned = list[str]()
    commit(run, work(11, 13))
    with collecting() as collector:
        exporting(run, collector.url, warned.append).finish()
        traces = collector.traces()
    assert warned == []
    assert set(collector.paths) == {"/v1/traces"}
    assert {ids_of("barn", number)[0].to_bytes(16) for number in (11, 12, 13)} <= traces.keys()
    root, *rest = traces[ids_of("barn", 11)[0].to_bytes(16)]
    assert (root.name, root.parent_span_id, {span.parent_span_id for span in rest}) == ("train", b"", {root.span_id})
    assert [span.name for span in rest] == ["download", "training", "upload", "verdict", "buffer", "version"]
    assert root.start_time_unix_nano == round((START + 110.0) * 1e9)
    assert root.end_time_unix_nano == round((START + 118.0) * 1e9)
    assert told(root)["node"] == "a"
    resource = collector.requests[0].resource_spans[0].resource
    names = {one.key: one.value.string_value for one in resource.attributes}
    assert (names["service.name"], names["barnraise.run"]) == ("barnraise", "barn")


def test_a_resumed_run_sends_no_trace_twice_and_ends_those_that_were_open(run: RunDirectory) -> None:
    rows = work(11, 14)
    with collecting() as collector:
        commit(run, rows[:6])
        exporting(run, collector.url, print).finish()
        before = set(collector.traces())
        commit(run, rows[6:])
        exporting(run, collector.url, print).finish()
        traces = collector.traces()
    assert ids_of("barn", 12)[0].to_bytes(16) in traces.keys() - before, "it was judged before, and merged after"
    assert all(len({span.span_id for span in spans}) == len(spans) for spans in traces.values())


def test_a_run_without_a_position_begins_with_new_rows(run: RunDirectory) -> None:
    commit(run, work(11, 12))
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        newest = ledger.last_id
    commit(run, work(13, 13))
    with collecting() as collector:
        exporting(run, collector.url, print, after=newest).finish()
        assert set(collector.traces()) == {ids_of("barn", 13)[0].to_bytes(16)}


@pytest.mark.parametrize("content", [b"", b"\xff\x00nonsense", b"\x81\xa3row\x01"])
def test_a_damaged_position_is_as_none(run: RunDirectory, content: bytes) -> None:
    commit(run, work(11, 11))
    (run.path / "tracking").mkdir()
    (run.path / "tracking/spans.msgpack").write_bytes(content)
    with collecting() as collector:
        exporting(run, collector.url, print).finish()
        assert ids_of("barn", 11)[0].to_bytes(16) in collector.traces()


def test_a_collector_that_refuses_gets_the_same_spans_again(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "FIRST_PAUSE", 0.01)
    warned = list[str]()
    commit(run, work(11, 11))
    with collecting(400, 500) as collector:
        made = exporting(run, collector.url, warned.append)
        until(lambda: collector.spans)
        made.finish()
        assert all(len({span.span_id for span in spans}) == len(spans) for spans in collector.traces().values())
    (one,) = warned
    assert "spans are not exported" in one
    assert "400" in one


def test_an_unreachable_collector_is_told_once(run: RunDirectory, capfd: pytest.CaptureFixture[str]) -> None:
    warned = list[str]()
    commit(run, work(11, 11))
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as unused:
        url = f"http://127.0.0.1:{unused.server_address[1]}"
    made = exporting(run, url, warned.append)
    until(lambda: made._sender is not None)
    made.finish(0.5)
    until(lambda: not made._thread.is_alive())
    (one,) = warned
    assert "refused" in one
    assert capfd.readouterr() == ("", ""), "the exporter's own messages stay out of the terminal"
    logging.getLogger("opentelemetry.exporter").error("quiet")
    assert capfd.readouterr() == ("", "")
    with collecting() as collector:
        exporting(run, collector.url, warned.append).finish()
        assert ids_of("barn", 11)[0].to_bytes(16) in collector.traces(), "they are sent when it is there"


def test_a_collector_that_hangs_does_not_hold_up_the_end(run: RunDirectory) -> None:
    warned = list[str]()
    commit(run, work(11, 11))
    with collecting() as collector:
        collector.answers.clear()
        made = exporting(run, collector.url, warned.append)
        assert collector.asked.wait(60)
        made.finish(0.1)
    (one,) = warned
    assert one == "tracing: spans are not exported: the collector does not answer; the run works without them"
    made._thread.join(60)


def test_a_collector_that_answers_nonsense_harms_nothing(run: RunDirectory) -> None:
    class Nonsense(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 20)
            self.request.sendall(b"\xff\xfe nonsense \x1b[2J\r\n\r\n")

    warned = list[str]()
    commit(run, work(11, 11))
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Nonsense) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made = exporting(run, f"http://127.0.0.1:{server.server_address[1]}", warned.append)
        until(lambda: made._sender is not None)
        made.finish(0.5)
        made._thread.join(60)
        server.shutdown()
    (one,) = warned
    assert one.isprintable()
    with collecting(answer=b"\xff\xfe nonsense") as collector:
        exporting(run, collector.url, warned.append).finish()
        assert collector.spans


def test_the_environment_gives_endpoint_headers_and_compression(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(run, [*work(11, 11), assigned(200.0, 12, "a"), Noted(201.0, notes.Finished("enough"))])
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
        exporting(run, None, print).finish()
        (open_,) = collector.traces()[ids_of("barn", 12)[0].to_bytes(16)]
    assert (collector.headers[0]["x-key"], collector.headers[0]["content-encoding"]) == ("secret", "gzip")
    assert (open_.status.code, open_.status.message) == (FAILED, "the run ended before its result came")
    attributes = collector.requests[0].resource_spans[0].resource.attributes
    assert {one.value.string_value for one in attributes if one.key == "service.name"} == {"mine"}


def test_an_unsound_environment_is_told(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense")
    warned = list[str]()
    exporting(run, None, warned.append).finish()
    (one,) = warned
    assert "nonsense" in one


def test_a_missing_package_is_noticed() -> None:
    assert installed()
    assert not installed(["opentelemetry.no_such"])
    assert not installed(["no_such_package.exporter"])
    assert MODULE.startswith("opentelemetry")


def test_a_large_ledger_is_sent_in_bounded_requests(run: RunDirectory) -> None:
    commit(run, work(11, 400))
    with collecting() as collector:
        exporting(run, collector.url, print).finish(60.0)
        sizes = [len(one.resource_spans[0].scope_spans[0].spans) for one in collector.requests]
    assert max(sizes) == tracing.MOST_SENT
    assert sum(sizes) >= 7 * 390
