"""The wheel is whole: built, installed in an environment of its own, and run outside the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


def run(*command: str | Path, cwd: Path) -> str:
    """The standard output of a command that must succeed, run without the repository on its path."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    result = subprocess.run([str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution as a release is."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with the wheel in it; what the wheel depends on is lent from this interpreter's."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "--disable-pip-version-check"]
    run(*pip, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    (site_packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_wheel_holds_every_file(wheel: Path) -> None:
    there = set(zipfile.ZipFile(wheel).namelist())
    here = {
        str(path.relative_to(SOURCE))
        for path in (SOURCE / "barnraise").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in there if name.startswith("barnraise/")} == here
    assert "barnraise/py.typed" in there
    assert "barnraise/ledger/schema.sql" in there
    assert any(name.startswith("barnraise/config/presets/") and name.endswith(".yaml") for name in there)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in there)


def test_installed_package_is_the_one_that_runs(environment: Path, tmp_path: Path) -> None:
    code = "import barnraise, sys; print(barnraise.__file__, 'torch' in sys.modules)"
    place, torch_loaded = run(environment / "bin/python", "-c", code, cwd=tmp_path).split()
    assert Path(place).is_relative_to(environment)
    assert torch_loaded == "False"


def test_policies_work(environment: Path, tmp_path: Path) -> None:
    code = (
        "import torch\nfrom barnraise import aggregation\n"
        "print(aggregation.create('mean')(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist())"
    )
    assert run(environment / "bin/python", "-c", code, cwd=tmp_path).strip() == "[2.0, 3.0]"


def test_command_line_runs(environment: Path, tmp_path: Path) -> None:
    barnraise = environment / "bin/barnraise"
    version = run(environment / "bin/python", "-c", "import barnraise; print(barnraise.__version__)", cwd=tmp_path)
    assert version.strip() in run(barnraise, "--version", cwd=tmp_path)
    help_text = run(barnraise, "--help", cwd=tmp_path)
    for command in ("train", "serve", "join", "resume", "simulate", "check", "doctor"):
        assert command in help_text


def test_metadata_agrees(wheel: Path) -> None:
    """One version everywhere: the wheel's name and the package's own word."""
    text = (SOURCE / "barnraise/__init__.py").read_text()
    assert f'__version__ = "{wheel.name.split("-")[1]}"' in text
