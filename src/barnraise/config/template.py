"""Run files to start from: presets as they are kept, or with every other key at its default behind a `#`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from textwrap import wrap
from typing import Any

import yaml

from barnraise.config.document import parse
from barnraise.config.keys import Key, Names, sections
from barnraise.core.errors import UnknownNameError

WIDTH = 118
HEAD = "A run file for `barnraise`; `barnraise check FILE` says whether it is sound and what the run would cost."
HOW = "A key behind a bare # is at its default: remove the # to set it."


def presets() -> list[str]:
    """Return the names of all presets."""
    folder = resources.files("barnraise.config") / "presets"
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))


def preset(name: str) -> dict[str, Any]:
    """Return the values of a preset; UnknownNameError with the nearest one."""
    return parse(short(name).encode(), f"{name}.yaml").content


def short(name: str) -> str:
    """Return the run file of a preset with the keys that it sets; UnknownNameError with the nearest one."""
    if name not in presets():
        raise UnknownNameError("preset", name, presets())
    return (resources.files("barnraise.config") / "presets" / f"{name}.yaml").read_text("utf-8")


def to_fill_in(name: str) -> str:
    """Return the note of a preset on values that its user has to fill in, "" where nothing is missing."""
    found = re.search(r"^# FILL IN (.+)$", short(name), re.MULTILINE)
    return found[1] if found else ""


def render(name: str, names: Names) -> str:
    """Return the run file of a preset with every key as YAML with comments, which list the `names` of policies."""
    values = preset(name)
    lines = [*_comment(HEAD), *_comment(HOW)]
    for heading, section, description, keys in sections(names):
        kind = next((key for key in keys if key.name == "kind"), None)
        if kind is not None and values["data"]["kind"] != kind.expected:
            continue
        lines += ["", *_comment(description)]
        if section.endswith("[]"):
            lines += _list(section.removesuffix("[]"), values.get(section.removesuffix("[]"), []), keys)
        else:
            lines += _section(heading.partition(" ")[0], values.get(section, {}), keys)
    return "\n".join(lines) + "\n"


def _section(name: str, given: dict[str, Any], keys: list[Key]) -> Iterator[str]:
    yield f"{name}:"
    for key in keys:
        yield from _comment(f"{key.description} ({key.expected})", indent="  ")
        off = "" if key.name in given else "#"
        yield f"  {off}{key.name}: {flow(given.get(key.name, key.default))}"


def _list(name: str, given: list[dict[str, Any]], keys: list[Key]) -> Iterator[str]:
    for key in keys:
        default = "required" if key.required else f"default {flow(key.default)}"
        yield from _comment(f"{key.name} ({default}): {key.description}", hang="  ")
    yield f"{name}:" if given else f"#{name}: []"
    for entry in given:
        yield f"  - {flow(entry)}"


def flow(value: Any) -> str:
    """Return `value` as YAML on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _comment(text: str, indent: str = "", hang: str = "") -> list[str]:
    return [f"{indent}# {line}" for line in wrap(text, WIDTH - len(indent), subsequent_indent=hang)]
