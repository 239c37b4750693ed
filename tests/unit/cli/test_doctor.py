"""`barnraise doctor`: it looks at this very machine."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator

import pytest

from barnraise.cli import doctor, main


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main.main(["doctor", *arguments])
    return int(ended.value.code or 0)


@pytest.fixture
def few_open_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_doctor_reports_each_check_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code = run("--json")
    result = json.loads(capsys.readouterr().out)
    found = {row["name"]: row for row in result["checks"]}
    assert code == (0 if result["ok"] else 1)
    assert result["ok"] == all(row["ok"] for row in found.values() if row["required"])
    assert found["python"]["found"] == ".".join(map(str, sys.version_info[:3]))
    assert found["zmq"]["ok"]
    assert "with CURVE" in found["zmq"]["found"]
    assert found["torch"]["ok"]
    assert found["loopback"]["ok"]


def test_doctor_prints_one_line_a_check_and_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    code = run()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ok       python")
    assert lines[-1] == ("everything needed is here" if code == 0 else "something needed is missing: see above")


@pytest.mark.usefixtures("few_open_files")
def test_something_missing_comes_with_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 1
    out = capsys.readouterr().out
    assert "MISSING  open files          256 a process" in out
    assert "raise it: ulimit -n " in out


def test_a_package_that_does_not_import() -> None:
    finding = doctor._package("barnraise_no_such_package", "pip install it", lambda module: "")
    assert (finding.ok, finding.remedy) == (False, "pip install it")
    assert finding.found.startswith("ModuleNotFoundError")
