"""The generated pages list all that the code declares."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from barnraise.aggregation.catalog import CATALOG as RULES
from barnraise.cli.main import COMMANDS
from barnraise.cli.reference import PAGES, write
from barnraise.cli.reference_pages import commands_page, ledger_page, messages_page, parts_page
from barnraise.compression.catalog import CATALOG as CODECS
from barnraise.config import load, template
from barnraise.config.aliases import MOVED
from barnraise.config.data_sections import SatData
from barnraise.config.keys import json_schema, sections
from barnraise.controller.machine import PARTS
from barnraise.core.registry import Catalog
from barnraise.data.sat.options import SatOptions
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
from barnraise.wire.messages import FromController, FromWorker

CATALOGS = [CODECS, RULES, SCHEDULERS, OUTER, INNER, TRANSPORTS, ATTACKS]


def test_all_pages_are_written(tmp_path: Path) -> None:
    """tests/architecture/test_docs.py compares them with the committed ones."""
    assert {str(path.relative_to(tmp_path)) for path in write(tmp_path)} == set(PAGES)
    assert all((tmp_path / name).read_text() == page() for name, page in PAGES.items())


def test_messages_and_notes_and_tables_are_listed() -> None:
    page = messages_page()
    assert all(f"| `{kind.__name__}` |" in page for union in (FromWorker, FromController) for kind in get_args(union))
    ledger = ledger_page()
    tables = ("meta", "nodes", "assignments", "contributions", "versions", "events", "chain")
    assert re.findall(r"^## Table (\w+)$", ledger, re.MULTILINE) == list(tables)
    assert "| `head` | TEXT NOT NULL | the chain's head after it |" in ledger
    assert "| `checkpoint_failed` |" in ledger


def test_parts_are_listed_after_those_that_they_need() -> None:
    rows = [line.split(" | ") for line in parts_page().splitlines() if re.match(r"\| \d", line)]
    seen: set[str] = set()
    for row in rows:
        assert set(re.findall(r"\w+", row[4])) <= seen
        seen.add(row[1].strip("`"))
    assert {part.__name__ for part in PARTS} <= seen


def test_every_command_and_option_is_listed() -> None:
    page = commands_page()
    assert all(f"## {name}\n" in page for name in COMMANDS)
    assert "### data sat\n" in page
    assert "| `--max-memory SIZE` |" in page


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
    assert options.pop("tokens") is None, "the run's token budget is no key of data"
    assert section.keys() == options.keys()
    assert section | {"seed": options["seed"], "packing": options["packing"]} == options


def test_the_json_schema_marks_other_spellings_as_deprecated() -> None:
    schema = json.loads(schema_text())
    for old, key in MOVED.items():
        (former, spelling), (section, name) = old.split("."), key.split(".")
        found = schema["$defs"][f"{former.capitalize()}Section"]["properties"][spelling]
        wanted = schema["$defs"][f"{section.capitalize()}Section"]["properties"][name]
        assert found == wanted | {"deprecated": True, "description": f"Another spelling of {key}."}
    worker = schema["$defs"]["WorkerSection"]["properties"]
    assert worker["memory"]["deprecated"]
    assert "deprecated" not in worker["memory_bytes"]
    assert "deprecated" not in json.dumps(json_schema()), "the loader's own schema has the keys alone"


def test_the_json_schema_knows_what_the_loader_knows() -> None:
    schema = json_schema()
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == {"model", "data"}
    assert schema_text().endswith("}\n")
    for name in template.presets():
        load(template.preset(name))
        assert set(template.preset(name)) <= set(schema["properties"])
