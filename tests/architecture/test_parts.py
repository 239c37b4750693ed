"""The parts of the controller's state machine know each other directly, and its packages have room."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path

import pytest

from barnraise.controller.machine import HOLDS, PARTS, Controller
from barnraise.controller.state.assembly import in_order, needs
from barnraise.controller.state.part import Part

CONTROLLER = Path(__file__).parents[2] / "src/barnraise/controller"
ALL = in_order(PARTS)
MOST_PACKAGES, MOST_FILES, SCREEN = 8, 15, 40


def reached(part: type[Part], source: str) -> list[str]:
    """The expressions by which a part's source reads what another part needs: `self.a.b`, b being needed by a."""
    mine, found = needs(part), []
    for node in ast.walk(ast.parse(textwrap.dedent(source))):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Attribute)
            and isinstance(node.value.value, ast.Name)
            and node.value.value.id == "self"
            and node.value.attr in mine
            and node.attr in needs(mine[node.value.attr])
        ):
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("part", ALL, ids=lambda part: part.__name__)
def test_a_part_reads_no_other_part_through_a_third(part: type[Part]) -> None:
    through = reached(part, inspect.getsource(part))
    assert not through, f"{part.__name__} reads {', '.join(through)}: let it declare that need itself"


def test_reading_through_a_third_is_noticed() -> None:
    dispatch = next(part for part in ALL if part.__name__ == "Dispatch")
    source = "def look(self):\n    self.membership.uploads.inspecting\n    self.uploads.inspecting\n"
    assert reached(dispatch, source) == ["self.membership.uploads"]


def test_only_parts_that_hold_nodes_are_asked() -> None:
    assert set(HOLDS) == {part for part in ALL if part.hold is not Part.hold}


def test_the_controller_has_few_packages_of_few_files() -> None:
    packages = [path.parent for path in CONTROLLER.glob("*/__init__.py")]
    assert len(packages) <= MOST_PACKAGES
    crowded = {path.name: len(list(path.glob("*.py"))) for path in packages}
    full = [name for name, num_files in crowded.items() if num_files > MOST_FILES]
    assert not full, f"{full}: more than {MOST_FILES} files; move a file, or join two small ones: {crowded}"


def test_the_controller_is_made_on_one_screen() -> None:
    assert len(inspect.getsource(Controller.__init__).splitlines()) <= SCREEN
