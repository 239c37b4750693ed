"""The generated pages say what the code does, and the committed ones are not stale."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from barnraise.aggregation.catalog import CATALOG as RULES
from barnraise.cli.reference import write
from barnraise.compression.catalog import CATALOG as CODECS
from barnraise.config import load, template
from barnraise.config.data_sections import SatData
from barnraise.config.keys import json_schema, sections
from barnraise.core.registry import Catalog
from barnraise.data.sat import SatOptions
from barnraise.emulation.attacks.catalog import CATALOG as ATTACKS
from barnraise.matching.catalog import CATALOG as SCHEDULERS
from barnraise.models.architectures import ARCHITECTURES
from barnraise.plan import suggest
from barnraise.plan.compatibility import ROWS
from barnraise.plan.names import names
from barnraise.plan.reference import configuration_page, schema_text
from barnraise.staleness.base import WEIGHTINGS
from barnraise.training.catalog import CATALOG as OUTER
from barnraise.training.catalog import INNER, PRECISIONS
from barnraise.training.schedule import SHAPES
from barnraise.transport.catalog import CATALOG as TRANSPORTS
from barnraise.transport.links.presets import LINKS

DOCS = Path(__file__).parents[2] / "docs"
CATALOGS = [CODECS, RULES, SCHEDULERS, OUTER, INNER, TRANSPORTS, ATTACKS]


@pytest.mark.parametrize("name", ["configuration.md", "run-file.schema.json"])
def test_the_committed_page_is_fresh(tmp_path: Path, name: str) -> None:
    write(tmp_path)
    assert (DOCS / name).read_text() == (tmp_path / name).read_text(), "stale: run `make docs`"


def test_every_key_is_documented() -> None:
    page = configuration_page()
    for heading, _, _, keys in sections():
        _, _, rest = page.partition(f"\n## {heading}\n")
        table = rest.partition("\n## ")[0]
        assert [f"`{key.name}`" for key in keys] == re.findall(r"^\| (`\w+`) \|", table, re.MULTILINE)


@pytest.mark.parametrize("catalog", CATALOGS, ids=lambda catalog: catalog.family)
def test_every_algorithm_is_documented(catalog: Catalog) -> None:
    page = configuration_page()
    for entry in catalog.entries.values():
        assert f"| `{entry.name}` | {entry.summary} |" in page
        assert all(f"`{option.name}` ({option.type.__name__}, " in page for option in entry.options)


def test_every_conflict_is_documented() -> None:
    page = configuration_page()
    assert all(f"| {row.what} | {row.why} | {row.instead} |" in page for row in ROWS)


@pytest.mark.parametrize(
    ("path", "listed"),
    [
        (("exchange", "compression"), CODECS.names()),
        (("exchange", "downlink_compression"), [n for n in CODECS.names() if CODECS.entry(n).declares.portable]),
        (("aggregation", "rule"), RULES.names()),
        (("aggregation", "outer_optimizer"), OUTER.names()),
        (("training", "inner_optimizer"), INNER.names()),
        (("training", "precision"), list(PRECISIONS)),
        (("training", "schedule"), list(SHAPES)),
        (("controller", "scheduler"), SCHEDULERS.names()),
        (("staleness", "weighting"), list(WEIGHTINGS)),
        (("network", "profile"), list(LINKS)),
        (("model", "architecture"), list(ARCHITECTURES)),
    ],
)
def test_a_key_lists_all_names(path: tuple[str, str], listed: list[str]) -> None:
    section, name = path
    keys = next(keys for _, found, _, keys in sections(names()) if found == section)
    expected = next(key.expected for key in keys if key.name == name)
    assert set(listed) <= set(re.findall(r"[\w-]+", expected))
    found = json.loads(schema_text())["$defs"]
    told = str(found.get(f"{section.capitalize()}Section", found.get(section.capitalize()))["properties"][name])
    assert all(f"'{listed_name}'" in told for listed_name in listed)


def test_a_new_policy_is_listed_and_suggested_without_another_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog's line is enough for the page, the schema, the template and the table's remedies."""
    krum = RULES.entry("krum")
    monkeypatch.setitem(RULES.entries, "brand_new", dataclasses.replace(krum, name="brand_new"))
    assert "| `brand_new` | " in configuration_page()
    assert "brand_new, bucketing, bulyan, centered_clipping" in configuration_page()
    assert '"brand_new"' in schema_text()
    assert "brand_new" in template.render("text", names())
    assert "brand_new" in suggest.rules_with("f")
    assert "brand_new" in suggest.choosing()


def test_the_sat_section_has_the_options_and_defaults_of_the_data_it_makes() -> None:
    section = SatData(kind="sat").model_dump(exclude={"kind", "retokenize"})
    options: dict[str, Any] = SatOptions().as_dict()
    assert section.keys() == options.keys()
    assert section | {"seed": options["seed"]} == options


def test_the_json_schema_knows_what_the_loader_knows() -> None:
    schema = json_schema()
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == {"model", "data"}
    assert schema_text().endswith("}\n")
    for name in template.presets():
        load(template.preset(name))
        assert set(template.preset(name)) <= set(schema["properties"])
