"""A dashboard's server: whom it answers, and what stops it, or does not."""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnraise.core.errors import AddressError
from barnraise.dashboard.access import token_of
from barnraise.dashboard.server import Dashboard
from barnraise.dashboard.source import FolderSource
from barnraise.ledger import RunDirectory

from ..cli.test_status import BEGINNING, make_run


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return make_run(tmp_path, BEGINNING)


@pytest.fixture
def served(run: RunDirectory) -> Iterator[Dashboard]:
    with Dashboard(FolderSource(run), "127.0.0.1", 0) as dashboard:
        yield dashboard


def ask(dashboard: Dashboard, path: str = "/metrics", **headers: str) -> http.client.HTTPResponse:
    port = int(re.search(r":(\d+)/$", dashboard.url)[1])  # type: ignore[index]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    return connection.getresponse()


def test_metrics_come_with_their_type_and_safe_headers(served: Dashboard) -> None:
    answer = ask(served)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b"barnraise_tokens_total 400.0" in answer.read()
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert (answer.headers["x-content-type-options"], answer.headers["cache-control"]) == ("nosniff", "no-store")


@pytest.mark.parametrize("host", ["evil.example.org", "evil.example.org:8710", "127.0.0.1.evil.org", ""])
def test_a_page_of_another_site_reads_nothing_by_a_name_of_its_own(served: Dashboard, host: str) -> None:
    answer = ask(served, Host=host)
    assert answer.status == 421
    assert b"barnraise_" not in answer.read()


def test_this_machine_has_several_names(served: Dashboard) -> None:
    for host in ("localhost", "127.0.0.1:1", "[::1]:99", "LOCALHOST:80"):
        assert ask(served, Host=host).status == 200, host


def test_other_machines_need_the_runs_token(run: RunDirectory) -> None:
    with Dashboard(FolderSource(run), "0.0.0.0", 0) as dashboard:
        token = token_of(run)
        assert (run.keys / "dashboard.token").stat().st_mode & 0o777 == 0o600
        assert ask(dashboard).status == 401
        wrong = ask(dashboard, Authorization=f"Bearer {token[:-1]}x")
        assert (wrong.status, b"keys/dashboard.token" in wrong.read()) == (401, True)
        assert ask(dashboard, Authorization=f"Bearer {token}").status == 200
        assert ask(dashboard, Authorization=f"Bearer {token}", Host=socket.gethostname()).status == 200
    assert token_of(run) == token, "it stays the same"


def test_a_taken_port_is_told_where_it_was_named_and_another_is_taken_where_not(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressError, match=rf":{port} \(Address already in use\): choose another"):
            Dashboard(FolderSource(run), "127.0.0.1", port)
        monkeypatch.setattr("barnraise.dashboard.server.USUAL_PORT", port)
        with Dashboard(FolderSource(run), "127.0.0.1", None) as dashboard:
            assert ask(dashboard).status == 200


def test_a_ledger_that_cannot_be_read_is_told_and_read_again_later(served: Dashboard, run: RunDirectory) -> None:
    aside = run.ledger.rename(run.ledger.with_suffix(".aside"))
    run.account_cache.unlink(missing_ok=True)
    answer = ask(served)
    assert (answer.status, b"cannot be read now: there is no ledger" in answer.read()) == (503, True)
    aside.rename(run.ledger)
    assert ask(served).status == 200


def test_an_unknown_page_is_no_error_of_the_server(served: Dashboard) -> None:
    assert ask(served, "/nothing/../%00").status == 404
