"""The sections about seeing a run: when spans are sent, and what is an endpoint."""

from __future__ import annotations

import pytest

from barnraise.config.load import load
from barnraise.config.watch_sections import TracingSection
from barnraise.core.errors import RunFileError

from .test_changes import CONTENT

COLLECTOR = "http://localhost:4318"


@pytest.mark.parametrize(
    ("section", "wanted"),
    [
        ({}, False),
        ({"share": 0.5}, False),
        ({"endpoint": COLLECTOR}, True),
        ({"endpoint": COLLECTOR, "enabled": False}, False),
        ({"enabled": True}, True),
    ],
)
def test_spans_are_sent_where_an_endpoint_is_given_or_they_are_enabled(
    section: dict[str, object], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", COLLECTOR)
    assert TracingSection(**section).wanted is wanted  # type: ignore[arg-type]
    assert load(CONTENT | {"tracing": section}).tracing.wanted is wanted


@pytest.mark.parametrize(
    "endpoint", ["localhost:4318", "ftp://localhost", "http:///v1", "http://a b", "http://x\x1b[2J\n", ""]
)
def test_an_endpoint_is_a_url(endpoint: str) -> None:
    with pytest.raises(
        RunFileError, match=r"tracing.endpoint: is .* must be a URL that begins with http:// or https://"
    ):
        load(CONTENT | {"tracing": {"endpoint": endpoint}})
