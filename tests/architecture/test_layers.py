"""The layers of the house hold, and the contract that says so would notice if they did not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def lint_imports(source: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts of pyproject.toml on the package under `source`, in a process that imports it from there."""
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", command, "--no-cache", "--config", str(ROOT / "pyproject.toml")],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
    )


def test_contracts_are_kept() -> None:
    result = lint_imports(ROOT / "src")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"core/upward.py": "import barnraise.cli"}, "barnraise.core is not allowed to import barnraise.cli"),
        (
            {"core/late.py": "def f():\n    import barnraise.wire"},
            "barnraise.core is not allowed to import barnraise.wire",
        ),
        ({"assembly/command.py": "import barnraise.cli"}, "barnraise.assembly is not allowed to import barnraise.cli"),
        ({"worker/aside.py": "import barnraise.controller"}, "barnraise.worker is not allowed to import"),
        ({"shed/__init__.py": ""}, "barnraise.shed"),
        (
            {"core/egg.py": "import barnraise.core.hen", "core/hen.py": "import barnraise.core.egg"},
            "No cycles are allowed in barnraise.core",
        ),
    ],
    ids=[
        "upward",
        "upward inside a function",
        "a command below the commands",
        "sideways",
        "undeclared package",
        "cycle",
    ],
)
def test_contracts_notice(tmp_path: Path, files: dict[str, str], complaint: str) -> None:
    package = tmp_path / "barnraise"
    shutil.copytree(ROOT / "src/barnraise", package, ignore=shutil.ignore_patterns("__pycache__"))
    for path, text in files.items():
        (package / path).parent.mkdir(exist_ok=True)
        (package / path).write_text(text)
    result = lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert complaint in " ".join(result.stdout.split())
