"""`constraints.txt` pins everything an install brings in, within the ranges that `pyproject.toml` gives."""

from __future__ import annotations

import importlib.util
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
INSTALLED = [
    Requirement(text)
    for text in [
        *PROJECT["build-system"]["requires"],
        *PROJECT["project"]["dependencies"],
        *(text for name, extra in EXTRAS.items() if name != "bench" for text in extra),
    ]
]
PEERS = [Requirement(text) for text in EXTRAS["bench"]]  # in an environment of their own, with pins of its own


def pins(file: str = "constraints.txt") -> dict[str, Version]:
    lines = [line.partition("#")[0].strip() for line in (ROOT / file).read_text().splitlines()]
    pairs = [line.split("==") for line in lines if line]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def needed(requirements: list[Requirement]) -> set[str]:
    """The names these requirements bring in here, followed through the metadata of what is installed."""
    found: set[str] = set()
    open_list = [(requirement, "") for requirement in requirements]
    while open_list:
        requirement, extra = open_list.pop()
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
            continue
        found.add(name)
        below = [Requirement(text) for text in metadata.requires(name) or []]
        open_list += [(child, wanted) for child in below for wanted in ("", *requirement.extras)]
    return found


def absent() -> set[str]:
    """The names of the extras that are not installed with the others, as far as they are not here."""
    tools = {"docs": "mkdocs", "coverage": "pytest_cov", "mlflow": "mlflow", "trackio": "trackio", "wandb": "wandb"}
    missing = [extra for extra, module in tools.items() if importlib.util.find_spec(module) is None]
    names = {canonicalize_name(Requirement(text).name) for extra in missing for text in EXTRAS[extra]}
    return names - {canonicalize_name(Requirement(text).name) for text in EXTRAS["dev"]}


@pytest.mark.parametrize("requirement", INSTALLED, ids=str)
def test_pin_is_in_range(requirement: Requirement) -> None:
    assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)], prereleases=True)


@pytest.mark.parametrize("requirement", [*map(Requirement, PROJECT["project"]["dependencies"]), *PEERS], ids=str)
def test_pin_of_the_peers_environment_is_in_range(requirement: Requirement) -> None:
    pin = pins("constraints-bench.txt").get(canonicalize_name(requirement.name))
    assert pin is not None
    assert requirement.specifier.contains(pin, prereleases=True)


def test_everything_needed_is_pinned() -> None:
    names = needed([one for one in INSTALLED if canonicalize_name(one.name) not in absent()])
    assert "sympy" in names, "torch's own needs are followed"
    assert names <= pins().keys()
