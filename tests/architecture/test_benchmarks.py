"""Every benchmark can be tried in small, so that `make bench-quick` notices one that no longer runs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(path for path in BENCHMARKS.glob("*.py") if not path.name.startswith("_"))


def takes_quick(path: Path) -> bool:
    """Whether the script, or the one whose arguments it takes, knows `--quick`."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value == "--quick":
            return True
        if isinstance(node, ast.ImportFrom) and any(name.name == "arguments" for name in node.names):
            return takes_quick(BENCHMARKS / f"{node.module}.py")
    return False


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_benchmark_can_be_tried_in_small(path: Path) -> None:
    assert takes_quick(path)


def test_a_benchmark_without_it_is_found(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import argparse\nargparse.ArgumentParser().parse_args()\n")
    assert not takes_quick(tmp_path / "slow.py")
