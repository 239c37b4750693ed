"""The folders and files under tests/unit mirror the packages and modules of src/barnraise; bad paths are noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE, UNIT = ROOT / "src" / "barnraise", ROOT / "tests" / "unit"


def fault(path: Path) -> str:
    """Say why `path`, relative to tests/unit, mirrors nothing of the package; nothing where it does.

    `test_level.py` and `test_level_ties.py` test the module `level.py` or the package `level` beside it; the tests of a
    package as a whole have its own name.
    """
    folder = PACKAGE / path.parent
    if not (folder / "__init__.py").is_file() or folder == PACKAGE:
        return f"src/barnraise/{path.parent} is no package: move the file to the folder of the package that it tests"
    tested = f"{path.stem.removeprefix('test_')}_"
    names = {module.stem for module in folder.glob("*.py")} | {
        module.parent.name for module in folder.glob("*/__init__.py")
    }
    if not any(tested.startswith(f"{name}_") for name in {*names, folder.name}):
        return f"no module of src/barnraise/{path.parent} is called as {path.name} begins: rename it to test_MODULE.py"
    return ""


def test_a_unit_test_stands_beside_its_module() -> None:
    files = [path.relative_to(UNIT) for path in sorted(UNIT.rglob("*.py"))]
    assert {str(path): found for path in files if (found := fault(path))} == {}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("test_ledger.py", "is no package"),
        ("barn/test_ledger.py", "is no package"),
        ("ledger/test_shed.py", "no module"),
        ("ledger/test_segment.py", "no module"),
        ("ledger/test_segments_torn.py", ""),
        ("ledger/test_ledger.py", ""),
        ("transport/http/test_http.py", ""),
        ("transport/test_http_strangers.py", ""),
    ],
)
def test_the_rule_notices(path: str, said: str) -> None:
    found = fault(Path(path))
    assert said in found
    assert bool(said) == bool(found)
