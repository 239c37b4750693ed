"""Alerts about a run while its controller works: posted to a webhook in Alertmanager's form, and mailed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import smtplib
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import TYPE_CHECKING, Any

from barnraise.account.alerts import Alert, Watch
from barnraise.account.moment import RunMoment
from barnraise.account.present import Present
from barnraise.account.vitals import vitals_of
from barnraise.assembly.account_keeper import AccountKeeper
from barnraise.assembly.present import present_of
from barnraise.config.watch_sections import AlertsSection
from barnraise.core.errors import BarnraiseError
from barnraise.core.text import printable
from barnraise.plan.alerts import secret_of, webhook_of

if TYPE_CHECKING:
    from barnraise.assembly.hosting import Host  # it imports torch

INTERVAL = 15.0
"""Seconds between two looks."""

TRIES: tuple[float, ...] = (0.0, 2.0, 10.0)
"""Seconds before each try to deliver a message."""

TIMEOUT = 10.0
LONGEST_SUMMARY = 500
EPOCH = "1970-01-01T00:00:00Z"


def message_of(run: str, alerts: Sequence[Alert], started: float) -> dict[str, Any]:
    """Return alerts in the form of Alertmanager's webhooks (version 4); `started` is the Unix time of their time 0."""
    run = printable(run)
    told = [
        {
            "status": "resolved" if alert.until is not None else "firing",
            "labels": {"alertname": alert.name, "severity": alert.severity, "run": run},
            "annotations": {"summary": printable(f"{run}: {alert.summary}", LONGEST_SUMMARY)},
            "startsAt": _moment(started + alert.since),
            "endsAt": _moment(started + alert.until) if alert.until is not None else EPOCH,
            "generatorURL": "",
            "fingerprint": hashlib.sha256(f"{run}\n{alert.name}".encode()).hexdigest()[:16],
        }
        for alert in alerts
    ]
    return {
        "version": "4",
        "groupKey": f"barnraise:{run}",
        "truncatedAlerts": 0,
        "status": "firing" if any(alert.until is None for alert in alerts) else "resolved",
        "receiver": "barnraise",
        "groupLabels": {"run": run},
        "commonLabels": {"run": run},
        "commonAnnotations": {},
        "externalURL": "",
        "alerts": told,
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def mail_of(run: str, alerts: Sequence[Alert], section: AlertsSection) -> EmailMessage:
    """Return alerts as a mail."""
    run, states = printable(run), ["resolved" if one.until is not None else one.severity for one in alerts]
    lines = [printable(f"{state}: {one.summary}", LONGEST_SUMMARY) for state, one in zip(states, alerts, strict=True)]
    mail = EmailMessage()
    mail["Subject"] = printable(f"[barnraise] {run}: {lines[0]}", 150)
    mail["From"] = section.email_from or section.email_to[0]
    mail["To"] = ", ".join(section.email_to)
    mail.set_content("\n".join([*lines, "", f"run {run} on {socket.gethostname()}", ""]))
    return mail


def post(path: str, message: dict[str, Any]) -> None:
    """Send a message to the URL in a file, by HTTP. Raises InputError, OSError."""
    content = json.dumps(message).encode()
    request = urllib.request.Request(webhook_of(path), content, {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # 4xx and 5xx raise HTTPError, an OSError
        answer.read(1)


def send(mail: EmailMessage, section: AlertsSection) -> None:
    """Send a mail, with TLS where the server offers it. Raises InputError, OSError, SMTPException (an OSError)."""
    host, _, port = section.smtp.rpartition(":")
    with smtplib.SMTP(host or section.smtp, int(port) if host else 25, timeout=TIMEOUT) as server:
        server.ehlo()
        if server.has_extn("starttls"):
            server.starttls()
            server.ehlo()
        if section.smtp_user is not None:
            server.login(section.smtp_user, _password(section))
        server.send_message(mail)


def _password(section: AlertsSection) -> str:
    if section.smtp_password_file is None:
        return ""
    return secret_of(section.smtp_password_file, "alerts.smtp_password_file")


class Alerting:
    """Looks at a run and delivers alerts, from a thread: a slow mail server holds up nothing else."""

    def __init__(self, section: AlertsSection, account: AccountKeeper, warn: Callable[[str], None]) -> None:
        self._section, self._account, self._warn = section, account, warn
        self._watch, self._began = Watch(), time.time() - time.monotonic()
        self._failed, self._pauses = "", TRIES
        self._lock = threading.Lock()  # the last look may come while a cancelled one still delivers

    @property
    def wanted(self) -> bool:
        """Return whether the run file names a receiver."""
        return bool(self._section.webhook_file or self._section.email_to)

    async def follow(self, host: Host) -> None:
        """Look at the run of a host, and deliver, until cancelled."""
        while True:
            await asyncio.to_thread(self.look, present_of(host), time.monotonic())
            await asyncio.sleep(INTERVAL)

    async def end(self, host: Host, failed: str) -> None:
        """Look once more, as the controller ends: the run is finished, interrupted, or has `failed` for a reason."""
        self._pauses = TRIES[:1]  # a receiver that is away holds up the end of no run
        await asyncio.to_thread(self.look, present_of(host), time.monotonic(), failed)

    def look(self, present: Present, now: float, failed: str = "") -> None:
        """Look at the run once, and deliver what has changed. An account that cannot be read is left to others."""
        try:
            vitals = vitals_of(RunMoment(*self._account.read(), self._account.budget, True, present), now)
        except BarnraiseError:
            return
        with self._lock:
            if alerts := self._watch.look(vitals._replace(over=printable(failed)) if failed else vitals):
                self._deliver(self._account.run.path.name, alerts)

    def _deliver(self, run: str, alerts: Sequence[Alert]) -> None:
        section = self._section
        if section.webhook_file is not None:
            path, message = section.webhook_file, message_of(run, alerts, self._began)
            self._try("webhook", lambda: post(path, message))
        if section.email_to:
            self._try("mail", lambda: send(mail_of(run, alerts, section), section))

    def _try(self, way: str, deliver: Callable[[], None]) -> None:
        """Try some times; tell a failure once, until something else fails."""
        told = ""
        for pause in self._pauses:
            time.sleep(pause)
            try:
                deliver()
            except Exception as error:  # the run continues whatever a receiver does
                told = f"{type(error).__name__}: {printable(str(error), 200)}"
            else:
                self._failed = ""
                return
        if told != self._failed:
            self._failed = told
            self._warn(f"an alert could not be sent by {way}: {told}")
