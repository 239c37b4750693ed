from __future__ import annotations

from pathlib import Path

import pytest

from barnraise.core.errors import DataError, DimacsError
from barnraise.data.sat import dimacs
from barnraise.data.sat.dimacs import Formula

SATLIB = Path(__file__).parents[5] / "shared" / "data" / "satlib"


def test_reads_what_the_format_allows() -> None:
    text = "c a comment\np cnf 4 3\n1 -2\n 0 3 4 0\nc in between\n-4\t2\n3 0\n"
    assert dimacs.parse(text) == Formula(4, ((1, -2), (3, 4), (-4, 2, 3)))


def test_the_satlib_trailer_ends_the_formula() -> None:
    assert dimacs.parse("p cnf 2 1\n1 -2 0\n%\n0\n\nanything at all") == Formula(2, ((1, -2),))


def test_a_missing_last_zero_is_forgiven() -> None:
    assert dimacs.parse("p cnf 2 2\n1 0\n-1 2") == Formula(2, ((1,), (-1, 2)))


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_line_endings_and_empty_clauses(ending: str) -> None:
    assert dimacs.parse(ending.join(["p cnf 1 2", "0", "1 0", ""])) == Formula(1, ((), (1,)))


def test_a_formula_without_clauses() -> None:
    assert dimacs.parse("p cnf 0 0\n") == Formula(0, ())


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "no header"),
        ("c only a comment\n", 2, "no header"),
        ("1 2 0\np cnf 2 1\n", 1, "before the header"),
        ("p cnf 2 1\np cnf 2 1\n1 0\n", 2, "second header"),
        ("p sat 2 1\n", 1, "must be 'p cnf"),
        ("p cnf 2\n", 1, "must be 'p cnf"),
        ("p cnf two 1\n", 1, "'two' is not an integer"),
        ("p cnf -1 1\n", 1, "says -1 variables"),
        ("p cnf 9999999999 1\n", 1, "says 9999999999 variables"),
        ("p cnf 1 9999999999\n", 1, "says 9999999999 clauses"),
        ("p cnf 2 1\n1 3 0\n", 2, "literal 3 is out of range"),
        ("p cnf 2 1\n1 -3 0\n", 2, "literal -3 is out of range"),
        ("p cnf 2 1\n1 x 0\n", 2, "'x' is not an integer"),
        ("p cnf 2 1\n1.0 0\n", 2, "'1.0' is not an integer"),
        ("p cnf 2 1\n1 - 0\n", 2, "'-' is not an integer"),
        ("p cnf 2 1\n\u0661 0\n", 2, "is not an integer"),
        ("p cnf 2 1\n" + "1" * 5000 + " 0\n", 2, "at most 10 digits"),
        ("p cnf 2 1\n1 0\n2 0\n", 3, "there are more"),
        ("p cnf 2 3\n1 0\n2 0\n", 4, "there are 2"),
    ],
)
def test_bad_files_are_refused_with_file_line_and_reason(text: str, line: int, reason: str) -> None:
    with pytest.raises(DimacsError) as caught:
        dimacs.parse(text, source="bad.cnf")
    assert str(caught.value).startswith(f"bad.cnf:{line}: ")
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 200


def test_bytes_that_are_no_text_name_their_line() -> None:
    with pytest.raises(DimacsError, match=r"x:2: byte 0xff is not text"):
        dimacs.parse(b"p cnf 1 1\n\xff\n", source="x")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        dimacs.read(tmp_path / "none.cnf")
    with pytest.raises(DataError, match="cannot be read"):
        dimacs.read(tmp_path)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.cnf"
    with path.open("wb") as file:
        file.truncate(dimacs.MAX_BYTES + 1)  # sparse: takes no space
    with pytest.raises(DimacsError, match="more than the limit"):
        dimacs.read(path)


def test_write_then_read(tmp_path: Path) -> None:
    formula = Formula(3, ((1, -2), (), (3,)))
    dimacs.write(formula, tmp_path / "f.cnf", comment="made\nhere")
    assert dimacs.read(tmp_path / "f.cnf") == formula
    assert (tmp_path / "f.cnf").read_text().startswith("c made\nc here\np cnf 3 3\n1 -2 0\n0\n")


def test_canonical_ignores_order_and_repeats() -> None:
    one = Formula(3, ((1, -2), (3,), (3,)))
    assert one.canonical() == Formula(3, ((3,), (-2, 1, 1))).canonical()
    assert one.canonical() != Formula(3, ((3,), (2, 1))).canonical()


@pytest.mark.skipif(not SATLIB.is_dir(), reason=f"the SATLIB sample is not at {SATLIB}")
def test_every_satlib_file_is_read() -> None:
    clauses = {"20": 91, "50": 218, "75": 325, "100": 430}
    files = sorted(SATLIB.glob("*.cnf"))
    assert len(files) >= 50
    for path in files:
        formula = dimacs.read(path)
        size = path.name.split("-")[0].lstrip("uf")
        assert formula.num_variables == int(size)
        assert len(formula.clauses) == clauses[size]
        assert all(len(clause) == 3 for clause in formula.clauses)
