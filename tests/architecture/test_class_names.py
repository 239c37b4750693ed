"""A class name stands for one thing: each name that two packages define has a reason to be in both."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from tests.architecture.trees import parse, walk

PACKAGE = Path(__file__).parents[2] / "src" / "barnraise"

MACHINES = "the controller's and the worker's machine have the same interface: events in, actions out"
DECIDED = "the controller's action, event or record, and the note or message of the ledger or the wire that it becomes"
FAMILIES = "each family's catalog declares the traits of its own policies"
CATALOG = "the class of a policy or attack has the policy's name in its catalog"
LOCAL = "both are used inside their own package only, for different subjects"

REASONS = {
    "Action": MACHINES,
    "Event": MACHINES,
    "Received": MACHINES,
    "Send": MACHINES,
    "Tick": MACHINES,
    "Checkpointed": DECIDED,
    "Evaluate": DECIDED,
    "Evaluated": DECIDED,
    "Fetch": DECIDED,
    "Flushing": DECIDED,
    "Offer": DECIDED,
    "RunFile": "the run file as it was parsed, and the ledger's note of it",
    "Scored": DECIDED,
    "Traffic": DECIDED,
    "Traits": FAMILIES,
    "Claim": CATALOG,
    "Planned": CATALOG,
    "Reputation": CATALOG,
    "Case": LOCAL,
    "Context": "the context of an aggregation rule, and that of the controller's parts: no file uses both",
    "Entry": "an entry of a catalog of policies, and the entry of a machine into a run",
    "Link": "the bandwidth that the controller measured, and an emulated link",
    "Measured": "a measurement of the machine's load, and one of an update's length",
    "Problem": "a fault of a run file, and the thing that a run trains, which users' packages name so",
    "Record": "the record of versions in the controller's state, and a record of the ledger's payload segments",
    "Progress": "the progress of a run in the controller's state, and that of a worker for its owner",
    "Row": LOCAL,
    "Speed": "the speed that was measured of a node, and the pace that it is given",
    "Upload": "the upload that the controller receives, and the worker's action that sends it",
}
"""Each class name that occurs in more than one package, and why it stays."""


def duplicates(classes: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Return the names that occur in more than one package, with these packages, from (package, class name) pairs."""
    packages = defaultdict(set)
    for package, name in classes:
        packages[name].add(package)
    return {name: where for name, where in packages.items() if len(where) > 1}


def classes_of(package: Path) -> Iterable[tuple[str, str]]:
    """Yield (package, class name) of each class that is defined under `package`."""
    for path in sorted(package.rglob("*.py")):
        for node in walk(parse(path)):
            if isinstance(node, ast.ClassDef):
                yield path.relative_to(package).parts[0], node.name


def judged(found: Mapping[str, set[str]], reasons: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """Return the duplicated names without a reason, and the reasons for names that are no longer duplicated."""
    return set(found) - set(reasons), set(reasons) - set(found)


def test_a_name_in_two_packages_has_a_reason() -> None:
    unexplained, stale = judged(duplicates(classes_of(PACKAGE)), REASONS)
    assert not unexplained, f"rename one of each, or say in REASONS why both keep the name: {sorted(unexplained)}"
    assert not stale, f"no longer in two packages, take them out of REASONS: {sorted(stale)}"


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ([("a", "Node"), ("b", "Node")], ({"Node"}, {"Old"})),
        ([("a", "Node"), ("a", "Node")], (set(), {"Old"})),
        ([("a", "Old"), ("b", "Old"), ("c", "Old")], (set(), set())),
    ],
)
def test_duplicates_and_stale_reasons_are_noticed(
    classes: list[tuple[str, str]], expected: tuple[set[str], set[str]]
) -> None:
    assert judged(duplicates(classes), {"Old": "both are old"}) == expected
