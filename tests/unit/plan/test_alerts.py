"""The receivers of alerts: what is wrong with them is said before a run starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnraise.config.load import load
from barnraise.plan.alerts import alert_problems, webhook_of

from ..cli.test_status import RUN_FILE


def problems(**section: Any) -> list[tuple[str, str]]:
    return [(problem.key, problem.message) for problem in alert_problems(load(RUN_FILE | {"alerts": section}))]


def test_receivers_in_order_are_no_problem(tmp_path: Path) -> None:
    (tmp_path / "hook").write_text(" https://hooks.example.org/secret\n")
    (tmp_path / "password").write_text("secret")
    assert webhook_of(str(tmp_path / "hook")) == "https://hooks.example.org/secret"
    assert not problems()
    assert not problems(
        webhook_file=str(tmp_path / "hook"), email_to=["a@b.org"], smtp="mail.example.org:587",
        smtp_password_file=str(tmp_path / "password"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("section", "key", "message"),
    [
        ({"webhook_file": "/none/hook"}, "alerts.webhook_file", "cannot be read: No such file"),
        ({"smtp_password_file": "/none/x"}, "alerts.smtp_password_file", "cannot be read: No such file"),
        ({"email_to": ["a@b.org", "host"]}, "alerts.email_to[1]", "'host' is no address"),
        ({"email_from": "a b@c"}, "alerts.email_from", "is no address"),
        ({"smtp": "mail:smtp"}, "alerts.smtp", "write it as mail.example.org:587"),
    ],
)
def test_a_receiver_that_cannot_work_is_named(section: dict[str, Any], key: str, message: str) -> None:
    ((found, told),) = problems(**section)
    assert (found, message in told) == (key, True)


@pytest.mark.parametrize("content", ["", "ftp://x", "https://x\nhttps://y", "https://" + "x" * 5000])
def test_a_webhook_file_holds_one_url(tmp_path: Path, content: str) -> None:
    (tmp_path / "hook").write_text(content)
    ((key, told),) = problems(webhook_file=str(tmp_path / "hook"))
    assert (key, "must hold one line: a URL" in told) == ("alerts.webhook_file", True)
