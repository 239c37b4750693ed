"""Export of a run's spans to an OpenTelemetry collector while its controller works, from a thread of its own.

The ledger is the queue: the thread reads further rows only once the collector has taken the spans of those before. A
collector that cannot be reached or hangs holds up that thread alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

import msgspec

from barnraise.account.reducer import RowFeed
from barnraise.account.spans import SpanRecord, Spans
from barnraise.config.watch_sections import TracingSection
from barnraise.core.decoding import MALFORMED
from barnraise.core.files import write_file
from barnraise.core.text import printable
from barnraise.ledger import LedgerView, RunDirectory
from barnraise.ledger.cursor import BATCH

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Status

    from barnraise.assembly.hosting import Host  # it imports torch

EVERY = 5.0
"""Seconds between two looks at the ledger."""

PATIENCE = 5.0
"""Seconds that the end of a run waits for the collector."""

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 60.0
"""Seconds before a refused request is sent again: each pause is twice the last."""

MOST_SENT = 512
"""Spans in a request."""

MODULE, EXTRA = "opentelemetry.exporter.otlp.proto.http", "otel"
POSITION = "spans.msgpack"


class Sender(Protocol):
    """Sends spans to a collector."""

    @property
    def failure(self) -> str:
        """Return why the last spans have not arrived yet; empty where they have."""
        ...

    def send(self, spans: Sequence[SpanRecord]) -> bool:
        """Send spans, and return whether the collector took them."""
        ...

    def close(self) -> None:
        """End what it does; it sends nothing afterwards."""
        ...


class ExportPosition(msgspec.Struct):
    """How far a run's spans are exported: the state behind the ledger's row `row`, of which `mark` is the mark."""

    row: int
    mark: str
    spans: Spans


class Otlp:
    """Sends spans by OTLP over HTTP, through OpenTelemetry's own exporter."""

    def __init__(self, endpoint: str | None, run: str, start: float) -> None:
        """`start` is the Unix time at which the run's clock was 0. Raises ValueError for an unsound environment."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import Link, SpanContext, Status, TraceFlags

        self._start = start
        self._log = _FirstMessage()
        logger = logging.getLogger("opentelemetry.exporter")  # else its messages appear in the live view
        logger.addHandler(self._log)
        logger.propagate = False
        found = Resource.create({"barnraise.run": printable(run)})
        if str(found.attributes.get("service.name", "")).startswith("unknown_service"):
            found = found.merge(Resource({"service.name": "barnraise"}))
        self._resource, self._scope = found, InstrumentationScope("barnraise")
        self._made, self._context, self._link, self._fine = ReadableSpan, SpanContext, Link, Status()
        self._flags = TraceFlags(TraceFlags.SAMPLED)
        self._exporter = OTLPSpanExporter(traces_url(endpoint) if endpoint is not None else None)

    @property
    def failure(self) -> str:
        return printable(self._log.text, 300)

    def send(self, spans: Sequence[SpanRecord]) -> bool:
        from opentelemetry.sdk.trace.export import SpanExportResult

        self._log.text = ""
        try:
            taken = self._exporter.export([self._span(span) for span in spans]) is SpanExportResult.SUCCESS
        except Exception as error:  # exporters raise exceptions of any type
            taken, self._log.text = False, f"{type(error).__name__}: {error}"
        self._log.text = "" if taken else self._log.text or "no reason is known"
        return taken

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _span(self, one: SpanRecord) -> ReadableSpan:
        return self._made(
            one.name,
            self._context(one.trace, one.span, False, self._flags),
            parent=self._context(one.trace, one.parent, False, self._flags) if one.parent else None,
            resource=self._resource,
            attributes=one.attributes,
            links=[self._link(self._context(*one.link, False, self._flags))] if one.link is not None else (),
            status=self._status(one.failed),
            start_time=self._nanoseconds(one.start),
            end_time=self._nanoseconds(one.stop),
            instrumentation_scope=self._scope,
        )

    def _status(self, failed: str) -> Status:
        from opentelemetry.trace import Status, StatusCode

        return Status(StatusCode.ERROR, failed) if failed else self._fine

    def _nanoseconds(self, time: float) -> int:
        return round((self._start + time) * 1e6) * 1000


class Tracing:
    """Exports the spans of a run, each trace once: also after the run was resumed.

    A file in the run directory tells how far. Without one a resumed run begins with what is new. A collector that
    fails is told once, and tried again until the run ends.
    """

    def __init__(
        self,
        run: RunDirectory,
        spans: Spans,
        make: Callable[[], Sender],
        warn: Callable[[str], None],
        *,
        after: int = 0,
    ) -> None:
        """Begin after the ledger's row `after`, or where the file says. `make` runs in the thread."""
        self._run, self._spans, self._make, self._warn, self._after = run, spans, make, warn, after
        self._path = run.path / "tracking" / POSITION
        self._over, self._told = threading.Event(), False
        self._sender: Sender | None = None
        self._thread = threading.Thread(target=self._work, name="tracing", daemon=True)

    def start(self) -> None:
        """Start the thread that exports."""
        self._thread.start()

    def finish(self, patience: float = PATIENCE) -> None:
        """Export the rest in at most `patience` seconds, and end."""
        self._over.set()
        if self._sender is not None and self._sender.failure:
            self._sender.close()
        self._thread.join(patience)
        if self._thread.is_alive() and self._sender is not None:
            self._tell(self._sender.failure or "the collector does not answer")
            self._sender.close()

    def _work(self) -> None:
        try:
            self._sender = self._make()
            with LedgerView(self._run.ledger) as view:
                after = self._begin(view)
                feed = RowFeed(view, [self._spans], after=after)
                while self._turn(view, feed):
                    pass
        except Exception as error:  # ledger, file or environment are unsound: the run continues
            self._tell(f"{type(error).__name__}: {error}")

    def _begin(self, view: LedgerView) -> int:
        """Return the row after which to read, with the state behind it in `_spans`."""
        try:
            found = msgspec.msgpack.decode(self._path.read_bytes(), type=ExportPosition)
        except (OSError, *MALFORMED):
            found = None
        if found is not None and found.mark == view.mark(found.row):
            run, share = self._spans.run, self._spans.share
            self._spans = msgspec.structs.replace(found.spans, run=run, share=share)
            return found.row
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_file(self._path, self._position(view, self._after))
        return self._after

    def _turn(self, view: LedgerView, feed: RowFeed) -> bool:
        """Export the spans of the next rows, and return whether more may follow."""
        over, before = self._over.is_set(), feed.rows
        feed.advance(lambda: True)  # one batch of rows
        more = feed.rows - before == BATCH
        spans, position = self._spans.take(), self._position(view, feed.rows)
        if over and not more:
            view.close()  # the controller is about to close the ledger, and the collector may hang
        for start in range(0, len(spans), MOST_SENT):
            if not self._sent(spans[start : start + MOST_SENT]):
                return False
        if feed.rows > before:
            write_file(self._path, position)
        if not more:
            self._over.wait(EVERY)
        return more or not over

    def _sent(self, spans: Sequence[SpanRecord]) -> bool:
        """Send spans, as often as it takes until the run is over."""
        assert self._sender is not None
        pause = FIRST_PAUSE
        while not self._sender.send(spans):
            self._tell(self._sender.failure)
            if self._over.wait(pause):
                return False
            pause = min(2 * pause, LONGEST_PAUSE)
        return True

    def _position(self, view: LedgerView, row: int) -> bytes:
        return msgspec.msgpack.encode(ExportPosition(row, view.mark(row), self._spans))

    def _tell(self, why: str) -> None:
        if not self._told:
            self._told = True
            self._warn(f"tracing: spans are not exported: {printable(why, 300)}; the run works without them")


class _FirstMessage(logging.Handler):
    """Keeps the first message of a logger until `text` is emptied: later ones say less."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = self.text or record.getMessage()


def traces_url(endpoint: str) -> str:
    """Return the URL for spans at a collector, with the path that OTLP gives it.

    >>> traces_url("http://localhost:4318/"), traces_url("https://example.org/v1/traces")
    ('http://localhost:4318/v1/traces', 'https://example.org/v1/traces')
    """
    base = endpoint.rstrip("/")
    return base if base.endswith("/v1/traces") else f"{base}/v1/traces"


def tracing_of(host: Host, warn: Callable[[str], None]) -> Tracing | None:
    """Return what exports the spans of a host's run, started; None where its run file wants none, or the extra lacks.

    The latter is told.
    """
    section: TracingSection = host.plan.run_file.tracing
    if not section.wanted:
        return None
    if not installed():
        warn(f"no tracing: OpenTelemetry's exporter is not installed (pip install 'barnraise[{EXTRA}]')")
        return None
    identity, start = host.machine.settings.run, time.time() - host.server.clock()
    made = Tracing(
        host.run,
        Spans(f"{identity.name}\n{identity.key}", section.share),
        lambda: Otlp(section.endpoint, identity.name, start),
        warn,
        after=host.ledger.last_id if host.resumed else 0,
    )
    made.start()
    return made


def installed(modules: Iterable[str] = (MODULE, "opentelemetry.sdk")) -> bool:
    """Return whether this machine has the extra's packages."""
    try:
        return all(find_spec(module) is not None for module in modules)
    except ModuleNotFoundError:  # a module above it is not there
        return False
