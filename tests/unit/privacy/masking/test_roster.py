"""The roster of trustees that a worker's owner accepts: its form, what it refuses, and bad files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.maskings import committee

from barnraise.core.errors import InputError
from barnraise.privacy.masking.committee import Committee
from barnraise.privacy.masking.roster import MOST_BYTES, TrusteeRoster, line_of

OWNERS = ("Ann Miller", "Bob", "Cy of the lab", "Di")


def lines(them: Committee | None = None) -> list[str]:
    return [line_of(one, owner) for one, owner in zip((them or committee()).trustees, OWNERS, strict=True)]


def text(*more: str) -> str:
    return "\n".join(["# trustees of run barn", "", "colluding 1", *lines(), *more])


def test_a_roster_is_read_with_its_owners(tmp_path: Path) -> None:
    file = tmp_path / "trustees.txt"
    file.write_bytes(("\ufeff" + text().replace("\n", "\r\n")).encode())
    found = TrusteeRoster.read(file)
    assert found.committee == committee()
    assert found.owners == OWNERS
    assert found.refuse(committee()) == ""


def test_the_order_of_seats_does_not_matter() -> None:
    them = committee()
    found = TrusteeRoster.parse(text(), "trustees.txt")
    assert found.refuse(replace(them, trustees=them.trustees[::-1])) == ""


@pytest.mark.parametrize("field", ["signer", "sealing"])
def test_a_trustee_of_the_host_in_place_of_a_pinned_one_is_named(field: str) -> None:
    them = committee()
    stranger = replace(them.trustees[2], **{field: "ab" * 32})
    other = replace(them, trustees=(*them.trustees[:2], stranger, them.trustees[3]))
    told = TrusteeRoster.parse(text(), "trustees.txt").refuse(other)
    assert told.startswith("trustees t2 of the run are not in trustees.txt with these keys")
    assert "ask the owners" in told


def test_another_number_of_trustees_and_of_colluding_ones_are_refused() -> None:
    roster = TrusteeRoster.parse(text(), "trustees.txt")
    assert "trustees t4 of the run are not in trustees.txt" in roster.refuse(committee(5, 1))
    seven = Committee(committee(7, 1).trustees, 2)
    assert "2 trustees of the run may collude, but trustees.txt says 1" in roster.refuse(seven)
    more = "\n".join(["colluding 1", *(line_of(one, one.name) for one in committee(5, 1).trustees)])
    assert "trustees t4 of trustees.txt have no seat" in TrusteeRoster.parse(more, "trustees.txt").refuse(committee())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "does not say how many trustees may collude"),
        ("\n".join(lines()), "add the line `colluding 1`"),
        ("colluding 0\n", "line 1: 'colluding 0' must be one line such as: colluding 1"),
        ("colluding 1\ncolluding 1\n", "line 2"),
        ("colluding 1\nab cd t1 Ann\n", "line 2: 'ab cd t1 Ann' is no trustee: write two keys of 64"),
        ("colluding 1\n" + lines()[0].rsplit(" ", 2)[0], "is no trustee"),
        ("colluding 1\n" + "\n".join(lines()[:3]), "3 trustees of whom 1 may collude, must be at least 4"),
        (text(lines()[0]), "two trustees have the name t0"),
        ("\0\udcff".encode("utf-8", "replace").decode(), "is no trustee"),
        (text().replace("Di", "ann MILLER"), "2 of 4 trustees belong to 'Ann Miller', at most 1 may"),
    ],
)
def test_a_roster_that_names_no_committee_that_can_hold_is_refused(content: str, told: str) -> None:
    with pytest.raises(InputError, match=f"(?s)trustees.txt.*{told.replace('(', '[(]')}"):
        TrusteeRoster.parse(content, "trustees.txt")


def test_files_that_cannot_be_read_or_are_too_long_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        TrusteeRoster.read(tmp_path / "missing")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        TrusteeRoster.read(tmp_path)
    (tmp_path / "long").write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(InputError, match=f"more than {MOST_BYTES} bytes"):
        TrusteeRoster.read(tmp_path / "long")
