"""`barnraise data solve`: a formula's verdict, model and trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnraise.cli import main

FORMULA = "p cnf 3 5\n1 2 0\n1 -2 0\n-1 2 3 0\n-1 -2 0\n-1 -3 0\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.cnf").write_text(FORMULA)


def solved(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    with pytest.raises(SystemExit) as end:
        main.main(["data", "solve", "f.cnf", *options])
    assert end.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("style", "trace"),
    [
        ("terse", "D 1 U -2 U 3 B -1 U 2 UNSAT"),
        ("trail", "D1 -2 3 F -1 2 F UNSAT"),
        ("trail_steps", "D1 | D1 -2 | D1 -2 3 | F -1 | -1 2 | F UNSAT"),
    ],
)
def test_a_trace_is_printed_in_its_style(capsys: pytest.CaptureFixture[str], style: str, trace: str) -> None:
    options = ("--trace", "--style", style, "--heuristic", "lowest")
    assert solved(capsys, *options).splitlines() == ["unsatisfiable", trace]
    assert json.loads(solved(capsys, *options, "--json")) == {
        "satisfiable": False, "model": None, "steps": len(trace.split()), "trace": trace.split(),
    }  # fmt: skip


def test_an_unknown_style_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["data", "solve", "f.cnf", "--style", "trails"]) == 2
    assert "unknown trace style 'trails'; did you mean 'trail'" in capsys.readouterr().err
