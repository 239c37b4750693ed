"""A collector of OpenTelemetry's spans for tests: a real HTTP server that decodes OTLP's protobuf messages."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

FAILED = Status.STATUS_CODE_ERROR


class Collector(ThreadingHTTPServer):
    """Keeps what it is sent; `statuses` are those of its next answers, 200 of further ones, with `answer` as body.

    It holds its answers back until `answers` is set.
    """

    daemon_threads = True

    def __init__(self, *statuses: int, answer: bytes = b"") -> None:
        self.statuses, self.answer = list(statuses), answer or ExportTraceServiceResponse().SerializeToString()
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.answers, self.asked = threading.Event(), threading.Event()
        self.answers.set()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def spans(self) -> list[Span]:
        """The spans of all requests that were answered with success."""
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def traces(self) -> dict[bytes, list[Span]]:
        """The spans by trace, the first one of each before those in it."""
        found: dict[bytes, list[Span]] = {}
        for span in self.spans:
            found.setdefault(span.trace_id, []).append(span)
        return found


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        content, server = self.rfile.read(int(self.headers["content-length"])), self.server
        server.paths.append(self.path)
        server.headers.append({name.lower(): value for name, value in self.headers.items()})
        server.asked.set()
        server.answers.wait()
        status = server.statuses.pop(0) if server.statuses else 200
        if status == 200:
            content = gzip.decompress(content) if self.headers["content-encoding"] == "gzip" else content
            server.requests.append(ExportTraceServiceRequest.FromString(content))
        self.send_response(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(server.answer)))
        self.end_headers()
        self.wfile.write(server.answer)

    def log_message(self, format: str, *arguments: object) -> None: ...


def told(span: Span) -> dict[str, Any]:
    """The attributes of a span, without the prefix of their names."""
    return {
        one.key.removeprefix("barnraise."): getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes
    }


@contextmanager
def collecting(*statuses: int, answer: bytes = b"") -> Iterator[Collector]:
    """A collector that serves while the context is open."""
    server = Collector(*statuses, answer=answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.answers.set()
        server.shutdown()
        thread.join()
        server.server_close()
