"""Results of long benchmarks, kept as they come, so that one that was ended goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Known:
    """A file of lines `[key, result]`; `path` None keeps nothing. Keys are lists of settings, results dataclasses."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._found = path, dict[str, object]()
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                key, result = json.loads(line)
                self._found[json.dumps(key)] = result

    def get(self, key: list[object], kind: type[T]) -> T | None:
        """What was found with these settings."""
        result = self._found.get(json.dumps(key))
        return None if result is None else msgspec.convert(result, kind)

    def add(self, key: list[object], result: object) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(f"[{json.dumps(key)}, {msgspec.json.encode(result).decode()}]\n")
