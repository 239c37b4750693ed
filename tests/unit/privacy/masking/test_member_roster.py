"""The roster of members that a trustee's owner accepts: its form, and bad files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.maskings import member_signer

from barnraise.core.errors import InputError
from barnraise.privacy.masking.member_roster import MemberRoster, member_line

KEYS = {name: member_signer(number).public for number, name in enumerate(("ann", "bob"))}
LINES = [member_line(name, key, f"{name} of the lab") for name, key in KEYS.items()]
KEY = "ab" * 32


def test_a_roster_is_read(tmp_path: Path) -> None:
    file = tmp_path / "members.txt"
    text = "\n".join(["# members of run barn", "", *LINES]).upper().replace("ANN", "ann").replace("BOB", "bob")
    file.write_bytes(("\ufeff" + text.replace("\n", "\r\n")).encode())
    found = MemberRoster.read(file)
    assert found.keys == KEYS
    found.require(2)
    with pytest.raises(InputError, match=r"members.txt names 2 members, but a sum of this run has 3 or more: add the"):
        found.require(3)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ab ann Ann", "line 3: 'ab ann Ann' is no member: write a key of 64 hexadecimal digits"),
        (f"{KEY} cy", "is no member"),
        (f"{KEY} ann Ann", "names ann a second time"),
        (member_line("cy", KEYS["ann"], "Cy"), "has the key of ann: a machine is one member"),
        ("\0\ufffd", "is no member"),
    ],
)
def test_a_wrong_line_is_named(line: str, told: str) -> None:
    with pytest.raises(InputError, match=r"members\.txt, line 3") as found:
        MemberRoster.parse("\n".join([*LINES, line]), "members.txt")
    assert told in str(found.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        MemberRoster.read(tmp_path / "missing")
