"""The text of invites, as it stands: the ones that were handed out are read by every later version."""

from __future__ import annotations

import pytest

from barnraise.transport import Invite

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
FIELDS = {
    "host": "lab.example.org",
    "port": 7001,
    "run": "sat-neo",
    "server_key": KEY,
    "token": "00112233445566ff",
    "secret": bytes(range(32)),
    "expires": 1_900_000_000,
    "uses": 3,
}
GOLDEN = [
    (
        Invite(**FIELDS),
        (
            "barnraise://lab.example.org:7001/sat-neo#AVT8uiTpMkmWkxb7YXyHK7DB0f8UgAQnxZTL-s8bwtZSAAECAwQFBgcICQo"
            "LDA0ODxAREhMUFRYXGBkaGxwdHh8AESIzRFVm_wAAAABxP7MAAAAAA3dvcmtlcgjE41njxg"
        ),
    ),
    (
        Invite(**FIELDS, http_port=7002),
        (
            "barnraise://lab.example.org:7001/sat-neo#AlT8uiTpMkmWkxb7YXyHK7DB0f8UgAQnxZTL-s8bwtZSAAECAwQFBgcICQo"
            "LDA0ODxAREhMUFRYXGBkaGxwdHh8AESIzRFVm_wAAAABxP7MAAAAAAwAbWndvcmtlctFjFSPQxg"
        ),
    ),
    (
        Invite(**{**FIELDS, "host": "::1", "role": "relay"}, scheme="xmlrpc"),
        (
            "barnraise://[::1]:7001/sat-neo#AlT8uiTpMkmWkxb7YXyHK7DB0f8UgAQnxZTL-s8bwtZSAAECAwQFBgcICQoLDA0ODxARE"
            "hMUFRYXGBkaGxwdHh8AESIzRFVm_wAAAABxP7MAAAAAAwEAAHJlbGF5EMOuwuNJ"
        ),
    ),
]
IDS = ["zmq", "zmq and http", "http"]


@pytest.mark.parametrize(("invite", "line"), GOLDEN, ids=IDS)
def test_lines_stay_the_same(invite: Invite, line: str) -> None:
    assert str(invite) == line


@pytest.mark.parametrize(("invite", "line"), GOLDEN, ids=IDS)
def test_golden_lines_are_understood(invite: Invite, line: str) -> None:
    assert Invite.parse(line, 1_800_000_000) == invite


def test_addresses_to_dial() -> None:
    assert [invite.uri for invite, _ in GOLDEN] == [
        "zmq://lab.example.org:7001",
        "zmq://lab.example.org:7001 xmlrpc://lab.example.org:7002",
        "xmlrpc://[::1]:7001",
    ]
