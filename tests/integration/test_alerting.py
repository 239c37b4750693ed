"""Alerts of a real run, delivered to a real webhook server and a real mail server."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from barnraise.account.account import AccountReader
from barnraise.account.alerts import Alert
from barnraise.account.moment import RunMoment
from barnraise.account.pauses import Pauses
from barnraise.account.present import Present, StandbyPresent
from barnraise.account.vitals import vitals_of
from barnraise.assembly import alerting
from barnraise.assembly.account_keeper import AccountKeeper
from barnraise.assembly.alerting import Alerting, mail_of, message_of
from barnraise.config.watch_sections import AlertsSection
from barnraise.ledger import Change, NodeChanged, Noted, notes

from ..unit.cli.test_status import BEGINNING, make_run

FIRING, OVER = Alert("disk", "page", "only 1 MB", 10.0), Alert("disk", "page", "only 1 MB", 10.0, 70.0)
PRESENT = Present(9.0, "training", "", (), {}, 0, 0, StandbyPresent())


class Receiver(HTTPServer):
    """A webhook server that answers with `status`, and keeps what it got."""

    def __init__(self, status: int = 200) -> None:
        self.status, self.got = status, list[Any]()
        super().__init__(("127.0.0.1", 0), Hook)


class Hook(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None: ...


class Mail(socketserver.StreamRequestHandler):
    """As much of a mail server as it takes to get a mail."""

    def handle(self) -> None:
        def say(line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

        say("220 here")
        while line := self.rfile.readline().decode().strip():
            if line.upper() == "DATA":
                say("354 go on")
                while (text := self.rfile.readline().decode().rstrip("\r\n")) != ".":
                    self.server.lines.append(text)  # type: ignore[attr-defined]
            say("221 bye" if line.upper() == "QUIT" else "250 fine")


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[AccountKeeper]:
    """The account of a run."""
    found = AccountKeeper(make_run(tmp_path, BEGINNING), 1000)
    yield found
    found.close()


def test_alerts_have_the_form_of_alertmanagers_webhooks() -> None:
    message = message_of("barn", [FIRING, OVER], 1_000_000_000.0)
    assert (message["version"], message["status"], message["receiver"]) == ("4", "firing", "barnraise")
    firing, resolved = message["alerts"]
    assert firing["labels"] == {"alertname": "disk", "severity": "page", "run": "barn"}
    assert (firing["status"], firing["startsAt"]) == ("firing", "2001-09-09T01:46:50.000Z")
    assert (resolved["status"], resolved["endsAt"]) == ("resolved", "2001-09-09T01:47:50.000Z")
    assert (
        firing["fingerprint"] == resolved["fingerprint"] != message_of("b", [FIRING], 0.0)["alerts"][0]["fingerprint"]
    )
    assert message_of("barn", [OVER], 0.0)["status"] == "resolved"


def test_a_hostile_text_adds_no_header_to_a_mail() -> None:
    section = AlertsSection(email_to=["host@example.org"])
    mail = mail_of("barn", [replace_summary("gone\r\nBcc: all@example.org\x1b[2J")], section)
    assert mail["Bcc"] is None
    assert mail["Subject"] == "[barnraise] barn: page: gone Bcc: all@example.org [2J"


def replace_summary(text: str) -> Alert:
    return FIRING._replace(summary=text)


def test_vitals_are_those_of_the_ledger_and_of_the_controller(tmp_path: Path) -> None:
    more = [
        NodeChanged(8.6, "b", Change.SILENT, "silent for 2 s"),
        Noted(8.8, notes.CheckpointFailed(1, "disk full")),
        Noted(8.9, notes.StandbyLost("s", "silent")),
    ]
    run = make_run(tmp_path, [*BEGINNING, *more])
    with AccountReader(run) as reader:
        account, over_time = reader.read(), reader.over_time
    vitals = vitals_of(RunMoment(account, over_time, 1000, True, PRESENT), 5.0)
    assert (vitals.tokens, vitals.accepted, vitals.lost, vitals.checkpoint_failures) == (400, 1, 1, 1)
    assert vitals.standby == (True, 0.0, 0)
    assert vitals.working
    paused = replace(account, merging=replace(account.merging, pauses=Pauses(host="the host paused the run")))
    rests = replace(PRESENT, state="paused")
    assert not vitals_of(RunMoment(paused, over_time, 1000, True, rests), 5.0).working
    short = replace(account, merging=replace(account.merging, pauses=Pauses(rule="1 live nodes")))
    assert vitals_of(RunMoment(short, over_time, 1000, True, rests), 5.0).working, "the host is to find workers"
    followed = replace(PRESENT, standby=StandbyPresent("s", 4, 7.0))
    again = vitals_of(RunMoment(account, over_time, 1000, True, followed), 5.0)
    assert again.standby == (False, 7.0, 0)
    assert 0 < vitals.disk_free < float("inf")


def test_an_alert_is_posted_and_mailed_and_its_end_too(keeper: AccountKeeper, tmp_path: Path) -> None:
    hook, file = Receiver(), tmp_path / "hook"
    mail = socketserver.TCPServer(("127.0.0.1", 0), Mail)
    mail.lines = []  # type: ignore[attr-defined]
    file.write_text(f"http://127.0.0.1:{hook.server_port}/secret\n")
    section = AlertsSection(
        webhook_file=str(file), email_to=["host@example.org"], smtp=f"127.0.0.1:{mail.server_address[1]}"
    )
    warned = list[str]()
    lost = Present(9.0, "training", "", (), {}, 0, 0, StandbyPresent(unprotected=3))
    with serving(hook), serving(mail):
        watching = Alerting(section, keeper, warned.append)
        assert watching.wanted
        watching.look(PRESENT, 0.0)
        watching.look(lost, 30.0)
        watching.look(lost, 60.0)
        watching.look(PRESENT, 90.0)
        watching.look(PRESENT, 120.0, "no worker is left")
    assert [(one["alerts"][0]["labels"]["alertname"], one["status"]) for one in hook.got] == [
        ("unprotected", "firing"), ("unprotected", "resolved"), ("over", "firing")
    ]  # fmt: skip
    subjects = [line for line in mail.lines if line.startswith("Subject")]  # type: ignore[attr-defined]
    assert len(subjects) == 3
    assert "the run is over: no worker is left" in " ".join(mail.lines)  # type: ignore[attr-defined]
    assert warned == []
    assert abs(time.time() - time.monotonic() - watching._began) < 5.0


def test_a_receiver_that_fails_is_tried_again_and_told_once(
    keeper: AccountKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerting, "TRIES", (0.0, 0.0, 0.0))
    hook, file = Receiver(500), tmp_path / "hook"
    file.write_text(f"http://127.0.0.1:{hook.server_port}/")
    warned = list[str]()
    watching = Alerting(AlertsSection(webhook_file=str(file)), keeper, warned.append)
    with serving(hook):
        for step in range(4):
            watching.look(replace(PRESENT, standby=StandbyPresent(unprotected=step % 2)), 30.0 * step)
        assert len(hook.got) == 9, "three alerts, three tries each"
    assert warned == ["an alert could not be sent by webhook: HTTPError: HTTP Error 500: Internal Server Error"]
    watching.look(PRESENT, 500.0)
    watching.look(replace(PRESENT, standby=StandbyPresent(unprotected=1)), 530.0)
    assert len(warned) == 2
    assert "Connection refused" in warned[1]


def test_no_receiver_is_no_work(keeper: AccountKeeper) -> None:
    assert not Alerting(AlertsSection(), keeper, print).wanted


def test_a_receiver_that_answers_nonsense_harms_no_run(
    keeper: AccountKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nonsense(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(b"\xff\xfe nonsense\r\n\r\n")

    monkeypatch.setattr(alerting, "TRIES", (0.0,))
    server, file, warned = socketserver.TCPServer(("127.0.0.1", 0), Nonsense), tmp_path / "hook", list[str]()
    file.write_text(f"http://127.0.0.1:{server.server_address[1]}/")
    watching = Alerting(AlertsSection(webhook_file=str(file)), keeper, warned.append)
    with serving(server):
        watching.look(replace(PRESENT, standby=StandbyPresent(unprotected=1)), 30.0)
    assert len(warned) == 1
    assert "BadStatusLine" in warned[0]
