"""No text speaks of the machine it was written on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ["src", "tests", "docs", "examples", "benchmarks", "scripts", ".ci"]
NOT_TEXT = {".bin", ".gz", ".nbc", ".nbi", ".npz", ".png", ".pyc", ".safetensors"}
TEXTS = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix not in NOT_TEXT]
TEXTS += [path for path in sorted(ROOT.iterdir()) if path.suffix in {".md", ".toml", ".txt"} or path.name == "Makefile"]
TEXTS = [path for path in TEXTS if path.is_file()]

# An absolute path into one author's machine, as against a URL, a relative path or a fraction.
LOCAL_PATH = re.compile(r"(?<![\w./})\]*-])/(?:work|tmp|root|home|Users)(?:/|\b(?!-))")


def test_no_local_paths() -> None:
    lines = ((path, line) for path in TEXTS for line in path.read_text(errors="replace").splitlines())
    assert [f"{path.relative_to(ROOT)}: {line}" for path, line in lines if LOCAL_PATH.search(line)] == []


@pytest.mark.parametrize("folder", ["work", "tmp", "home"])
def test_local_paths_are_noticed(folder: str) -> None:
    assert LOCAL_PATH.search(f"read it from /{folder}/data")
    assert LOCAL_PATH.search(f'open("/{folder}")')
    assert not LOCAL_PATH.search(f"https://example.org/{folder}/data and run/{folder}/x")
