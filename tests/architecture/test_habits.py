"""Files that keep habits: the changelog's form, the hooks before a commit, the templates of issues."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import barnraise

ROOT = Path(__file__).parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
LONGEST_ITEM = 180


def test_changelog_items_are_one_line_each() -> None:
    _, _, sections = CHANGELOG.partition("\n## ")
    lines = [line for line in sections.splitlines() if line]
    assert [line for line in lines if line.startswith(" ")] == []
    assert [line for line in lines if line.startswith("- ") and len(line) > LONGEST_ITEM] == []


def test_changelog_versions_are_dated_and_the_newest_is_this_one() -> None:
    headings = re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", heading) for heading in headings[1:])
    assert headings[1].startswith(f"[{barnraise.__version__}]")


def test_hooks_use_what_make_installs() -> None:
    """No hook fetches anything: each is a tool of the virtual environment."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [(repo["repo"], hook) for repo in config["repos"] for hook in repo["hooks"]]
    project = (ROOT / "pyproject.toml").read_text()
    assert {repo for repo, _ in hooks} == {"local"}
    tools = {hook["entry"].split()[0].removeprefix(".venv/bin/") for _, hook in hooks}
    assert tools == {"ruff", "mypy", "lint-imports", "pytest"}
    assert all(f'"{name}' in project for name in ("ruff", "mypy", "import-linter", "pytest"))


@pytest.mark.parametrize("form", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda form: form.name)
def test_issue_forms_are_whole(form: Path) -> None:
    content = yaml.safe_load(form.read_text())
    if form.name != "config.yml":
        assert {"name", "description", "body"} <= content.keys()
        ids = [field["id"] for field in content["body"] if field["type"] != "markdown"]
        assert len(ids) == len(set(ids)) > 0
