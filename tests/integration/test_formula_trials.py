"""`barnraise try` with formulas: from DIMACS files and as they are typed, and what cannot be tried."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnraise.assembly.exporting import export_model
from barnraise.cli.main import main
from barnraise.ledger import Ledger, Noted, RunDirectory, notes

from .test_report import SAT, make

CNF = "c three clauses\np cnf 3 3\n1 2 0\n-1 3 0\n-2\n-3 0\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A SAT run with an exported model, which learned nothing."""
    found, _ = make(tmp_path_factory.mktemp("sat"), SAT)
    with Ledger(found.ledger, found.segments, run=found.path.name) as ledger:
        ledger.commit([Noted(0.0, notes.Started(digest="ab" * 32, run=found.path.name))], {})
    export_model(found)
    return found


def test_a_formula_is_tried_from_a_file_and_as_it_is_typed(
    run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.cnf").write_text(CNF)
    told = []
    for given in (
        [str(tmp_path / "one.cnf")],
        ["--file", str(tmp_path / "one.cnf")],
        ["--formula", "(1 or 2) and (-1 or 3) and (-2 or -3)"],
        ["1 2, -1 3, -2 -3"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(["try", str(run.path), *given])
        assert ended.value.code == 0
        told.append(capsys.readouterr().out)
    assert len(set(told)) == 1
    assert told[0].startswith("formula: (1 or 2) and (-1 or 3) and (-2 or -3)\n")
    assert re.search(r"checker: (accepted|refused)", told[0])
    assert told[0].endswith("CaDiCaL: satisfiable\n")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["missing.cnf"], "missing.cnf cannot be read (No such file or directory); give a DIMACS file or a text"),
        (["empty.cnf"], "empty.cnf is empty; give a DIMACS file or a text"),
        (["damaged.cnf"], "damaged.cnf:2: literal 4 is out of range; the header says 3 variables"),
        (["--formula", "1 or 9"], "this model reads up to 3 variables"),
        (["--formula", "1 or two"], "'two' is no part of a formula"),
        (["--formula", "1", "1 2"], "give one of PROMPT, --file, --formula and --draw"),
    ],
)
def test_a_formula_that_cannot_be_tried_is_refused(
    run: RunDirectory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: list[str],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.cnf").write_text("\n")
    Path("damaged.cnf").write_text("p cnf 3 1\n1 4 0\n")
    assert main(["try", str(run.path), *given]) == 2
    assert reason in capsys.readouterr().err
