"""`barnraise report` ends with an error when a tracker lacks figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnraise.cli.main import main
from barnraise.ledger import Ledger, RunDirectory, VersionClosed


def test_a_tracker_that_cannot_write_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory.create("barn", tmp_path)
    run.run_file.write_text("")
    with Ledger(run.ledger, run.segments) as ledger:
        ledger.commit([VersionClosed(1.0, 1, (), 2, 1000, "full")], {})
    arguments = ["report", str(run.path), "--to", "tensorboard"]
    folder = run.path / "tracking" / "tensorboard"
    folder.parent.mkdir()
    folder.write_text("a file, where the tracker has its folder")
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: tensorboard: ")
    folder.unlink()
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("1 new points are in ")
