"""A dashboard's server: whom it answers, and what stops it, or does not."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from barnraise.core.errors import AddressError, InputError
from barnraise.dashboard.access import token_of
from barnraise.dashboard.passes import GUEST, NODE, OBSERVER, signed
from barnraise.dashboard.server import Dashboard, TlsFiles
from barnraise.dashboard.source import FolderSource
from barnraise.ledger import Ledger, Noted, RunDirectory, notes

from ..cli.test_status import BEGINNING, make_run


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return make_run(tmp_path, BEGINNING)


@pytest.fixture
def served(run: RunDirectory) -> Iterator[Dashboard]:
    with Dashboard(FolderSource(run), "127.0.0.1", 0) as dashboard:
        yield dashboard


def ask(
    dashboard: Dashboard, path: str = "/metrics", method: str = "GET", body: str | None = None, **headers: str
) -> http.client.HTTPResponse:
    port = int(re.search(r":(\d+)/$", dashboard.url)[1])  # type: ignore[index]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, body, headers={name.replace("_", "-"): value for name, value in headers.items()})
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


def test_the_token_in_an_address_becomes_a_cookie_that_no_script_reads(served: Dashboard, run: RunDirectory) -> None:
    answer = ask(served, f"/?token={token_of(run)}&a=1")
    assert (answer.status, answer.headers["location"]) == (303, "/?a=1")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    who = json.loads(ask(served, "/data/who", Cookie=cookie.partition(";")[0]).read())
    assert (who["role"], who["acts"]) == ("host", True)
    assert json.loads(ask(served, "/data/who").read())["role"] == "local"
    assert ask(served, "/?token=nonsense").status == 401
    assert ask(served, f"//evil.example/?token={token_of(run)}").headers["location"] == "/evil.example/"
    mixed = 'prefs={"a": 1}; ' + cookie.partition(";")[0]
    assert json.loads(ask(served, "/data/who", Cookie=mixed).read())["role"] == "host", "beside another site's cookie"
    observer = signed(token_of(run), OBSERVER, 1.0)
    assert "set-cookie" not in ask(served, f"/?token={observer}", Cookie=mixed).headers, "a host stays the host"


def test_a_request_that_a_proxy_passes_on_is_of_no_visitor_of_this_machine(served: Dashboard) -> None:
    assert ask(served, "/data/overview", X_Forwarded_For="192.0.2.7").status == 401


def test_connections_that_ask_for_nothing_are_ended(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnraise.dashboard.server.HEAD_SECONDS", 0.2)
    with Dashboard(FolderSource(run), "127.0.0.1", 0) as dashboard:
        port = int(dashboard.url.rstrip("/").rpartition(":")[2])
        for sent in (b"", b"GET / HTTP/1.1\r\nHost: local"):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as waiting:
                waiting.sendall(sent)
                with suppress(ConnectionError):
                    assert waiting.recv(1) == b""
        stream = ask(dashboard, "/stream/overview?after=0")
        assert stream.readline() == b"event: again\n"
        time.sleep(0.6)
        with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
            ask(dashboard, "/data/overview").read()
            ledger.commit([Noted(9.0, notes.Advice("still there"))], {})
        while b"still there" not in (line := stream.readline()):
            assert line, "a stream is no such connection"


def test_a_dashboard_ends_at_once_while_a_page_is_open(run: RunDirectory) -> None:
    with Dashboard(FolderSource(run), "127.0.0.1", 0) as dashboard:
        stream = ask(dashboard, "/stream/overview?after=0")
        assert stream.readline() == b"event: again\n"
    assert not dashboard._thread.is_alive()


def test_a_cookie_of_another_run_on_the_same_port_hides_nothing_from_this_machine(served: Dashboard) -> None:
    port = served.url.rstrip("/").rpartition(":")[2]
    assert json.loads(ask(served, "/data/who", Cookie=f"barnraise-{port}={'0' * 64}").read())["role"] == "local"


def test_a_request_that_changes_something_comes_from_a_page_of_this_server(
    served: Dashboard, run: RunDirectory
) -> None:
    bearer = {"Authorization": f"Bearer {token_of(run)}"}
    mark = {"X_Barnraise": "1"}
    assert ask(served, "/act/share", "POST", "{}", **bearer).status == 403, "without the mark"
    assert ask(served, "/act/share", "POST", "{}", **bearer, **mark, Origin="https://evil.example").status == 403
    assert ask(served, "/act/share", "POST", "{}", **bearer, **mark, Sec_Fetch_Site="cross-site").status == 403
    assert ask(served, "/act/share", "POST", "{}", **mark).status == 400, "this machine alone may look only"
    assert ask(served, "/act/share", "POST", "{}", **bearer, **mark).status == 200


@pytest.mark.parametrize(
    ("name", "body", "told"),
    [
        ("explode", "{}", "there is no action 'explode': there are finish, pause"),
        ("share", "[", "is no JSON"),
        ("share", "[1]", "is no JSON object"),
        ("share", '{"days": 1e9}', "'days' is 1e+09, but must be from 0.01 to 3650"),
        ("share", '{"days": true}', "'days' must be a number"),
        ("share", '{"node": "nobody"}', "the run has no node 'nobody'"),
        ("revoke", '{"node": 7}', "'node' must be a text"),
        ("invite", '{"uses": 0}', "'uses' is 0, but must be from 1"),
        ("pause", f'{{"reason": "{"x" * 25_000}"}}', "has more than 20,000 bytes"),
    ],
)
def test_a_wrong_action_is_answered_with_what_is_wrong(
    served: Dashboard, run: RunDirectory, name: str, body: str, told: str
) -> None:
    answer = ask(served, f"/act/{name}", "POST", body, Authorization=f"Bearer {token_of(run)}", X_Barnraise="1")
    assert answer.status == 400
    assert told in json.loads(answer.read())["error"]


def test_links_open_what_is_theirs(served: Dashboard, run: RunDirectory) -> None:
    key = token_of(run)
    observer, guest, node = (
        {"Authorization": f"Bearer {signed(key, role, 1.0, 'a' if role == NODE else '')}"}
        for role in (OBSERVER, GUEST, NODE)
    )
    for path, statuses in {
        "/data/overview": (200, 400, 400),
        "/lanes?node=worker+1": (200, 400, 400),
        "/data/me?node=b": (400, 400, 200),
        "/data/join": (200, 200, 200),
        "/story/a": (400, 400, 400),
        "/story/b": (400, 400, 400),
        "/why/a": (400, 400, 400),
        "/events": (400, 400, 400),
        "/metrics": (400, 400, 400),
    }.items():
        for who, status in zip((observer, guest, node), statuses, strict=True):
            assert ask(served, path, **who).status == status, (path, who)
    assert json.loads(ask(served, "/data/me?node=b", **node).read())["name"] == "a", "its own, whatever it asks for"
    assert ask(served, "/", **guest).headers["location"] == "/join"
    assert ask(served, "/", **node).headers["location"] == "/me"


def test_a_view_is_fetched_once_and_followed_by_its_patches(served: Dashboard, run: RunDirectory) -> None:
    whole = json.loads(gzip.decompress(ask(served, "/data/overview").read()))
    stream = ask(served, f"/stream/overview?after={whole['id']}")
    assert stream.headers["content-type"].startswith("text/event-stream")
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ledger.commit([Noted(9.0, notes.Advice("fewer nodes"))], {})
    told = stream.readline() + stream.readline() + stream.readline()
    assert told.startswith(b"event: patch\nid: %d\ndata: {" % (whole["id"] + 1))
    assert b"fewer nodes" in told
    again = ask(served, "/stream/overview?after=9000")
    assert again.readline() == b"event: again\n"


def test_a_stream_tells_that_the_run_cannot_be_read(served: Dashboard, run: RunDirectory) -> None:
    aside = run.ledger.rename(run.ledger.with_suffix(".aside"))
    stream = ask(served, "/stream/checks?after=0")
    while not (line := stream.readline()).startswith(b"event: trouble"):
        assert line, "the stream ended"
    assert b"there is no ledger" in stream.readline() + stream.readline()
    aside.rename(run.ledger)
    while not (line := stream.readline()).startswith(b"event: trouble"):
        assert line, "the stream ended"
    assert b'data: ""' in stream.readline() + stream.readline()


def test_stories_and_events_come_from_the_ledger(served: Dashboard) -> None:
    assert "a joined" in str(json.loads(ask(served, "/story/a").read())["lines"])
    assert ask(served, "/story/77").status == 400
    assert [one[1] for one in json.loads(ask(served, "/events?node=a").read())["events"]] == ["joined"]
    assert json.loads(ask(served, "/why/b").read())["why"] == "b proved its key and never joined"


def test_qr_codes_are_images_of_bounded_texts(served: Dashboard) -> None:
    assert json.loads(ask(served, "/qr?text=hello").read())["image"].startswith("data:image/svg+xml")
    assert ask(served, "/qr?text=").status == ask(served, f"/qr?text={'x' * 2000}").status == 400


def test_a_certificate_serves_by_tls_and_a_wrong_one_is_told(run: RunDirectory, tmp_path: Path) -> None:
    chain, key = str(tmp_path / "chain.pem"), str(tmp_path / "key.pem")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", chain, "-days", "1"]
    subprocess.run([*made, "-subj", "/CN=localhost"], check=True, capture_output=True)
    with Dashboard(FolderSource(run), "127.0.0.1", 0, TlsFiles(chain, key)) as dashboard:
        assert dashboard.url.startswith("https://")
        port = int(dashboard.url.rstrip("/").rpartition(":")[2])
        unchecked = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=unchecked)
        connection.request("GET", f"/?token={token_of(run)}")
        assert "Secure" in connection.getresponse().headers["set-cookie"]
    with pytest.raises(InputError, match=r"cannot be used .*: give a certificate and its key, in PEM"):
        Dashboard(FolderSource(run), "127.0.0.1", 0, TlsFiles(chain, str(tmp_path / "none.pem")))


def test_the_token_of_a_sealed_run_is_written_nowhere(run: RunDirectory) -> None:
    run.seal.write_text("{}")
    assert re.fullmatch("[0-9a-f]{64}", token_of(run))
    assert not (run.keys / "dashboard.token").exists()


def test_other_machines_need_the_runs_token(run: RunDirectory) -> None:
    with Dashboard(FolderSource(run), "0.0.0.0", 0) as dashboard:
        token = token_of(run)
        assert (run.keys / "dashboard.token").stat().st_mode & 0o777 == 0o600
        assert b"keys/dashboard.token" in ask(dashboard).read()
        assert ask(dashboard).status == 401
        wrong = ask(dashboard, Authorization=f"Bearer {token[:-1]}x")
        assert (wrong.status, b"ask the host of the run for a link" in wrong.read()) == (401, True)
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
