"""The keys of the run file as data, from its JSON Schema, for messages, documentation and `init`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from barnraise.config.aliases import ALIASES, EACH
from barnraise.config.problems import Path, key_of
from barnraise.config.schema import RunFile
from barnraise.config.values import MAX_COUNT

Schema = dict[str, Any]
Names = Mapping[str, Sequence[str]]
"""The names of each family of policies, from `plan.names`."""

NO_NAMES: Names = MappingProxyType({})


@dataclass(frozen=True)
class Key:
    """A key of the run file.

    `expected` has its type and range in words; `default` is None too where there is none (`required`).
    """

    name: str
    expected: str
    default: Any
    required: bool
    description: str


@cache
def json_schema() -> Schema:
    """Return the run file's JSON Schema (draft 2020-12)."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return head | RunFile.model_json_schema()


def with_spellings(schema: Schema) -> Schema:
    """Return a copy of the run file's JSON Schema with other spellings of keys, as deprecated ones."""
    known: Schema = deepcopy(schema)
    for alias in ALIASES:
        section, target = (_section_of(known, path[:-1]) for path in (alias.spelling, alias.key))
        note = f", {alias.note.replace('`', '')}" if alias.note else ""
        section["properties"][str(alias.spelling[-1])] = target["properties"][str(alias.key[-1])] | {
            "deprecated": True,
            "description": f"Another spelling of {written(alias.key)}{note}.",
        }
    return known


def _section_of(schema: Schema, path: Path) -> Schema:
    """Return the definition in `schema` of the section at an alias' path."""
    found = schema
    for key in path:
        found = found["items"] if key == EACH else found["properties"][str(key)]
        found = next((option for option in found.get("anyOf", []) if "$ref" in option), found)
        found = schema["$defs"][found["$ref"].removeprefix("#/$defs/")] if "$ref" in found else found
    return found


def expected(path: Path, content: object = None) -> str:
    """Describe the valid values at `path`.

    `content` tells the kind of data section.
    """
    return words(at(path, content))


def at(path: Path, content: object = None) -> Schema:
    """Return the schema of the value at `path`; empty where any value is valid."""
    schema = json_schema()
    for key in path:
        options = [_step(option, key) for option in _options(schema, content)]
        schema = next((option for option in options if option), {})
        content = content.get(key) if isinstance(content, dict) else None
    return _resolved(schema)


def known_keys(path: Path, content: object = None) -> list[str]:
    """Return the keys that a section may hold, without other spellings."""
    for key in path:
        content = content.get(key) if isinstance(content, dict) else content
    found = [option.get("properties", {}) for option in _options(at(path), content)]
    return list(dict.fromkeys(key for properties in found for key in properties))


def sections(names: Names = NO_NAMES) -> Iterator[tuple[str, str, str, list[Key]]]:
    """Yield (heading, path, description, keys) of every section, in order; `names` are listed."""
    schema = json_schema()
    for name, section in schema["properties"].items():
        for option in _options(section, None):
            listed = option.get("type") == "array"
            inner = _resolved(option["items"]) if listed else option
            kind = inner["properties"].get("kind", {}).get("const")
            path = f"{name}[]" if listed else name
            heading = f"{path} (kind: {kind})" if kind else path
            yield heading, path, _one_line(inner["description"]), list(_keys(inner, names))


def inner_sections(names: Names = NO_NAMES) -> Iterator[tuple[str, str, str, list[Key]]]:
    """Yield the same of the sections that are keys of a section, or entries of its lists, each once.

    Those that take any keys are left out.
    """
    schema, seen = json_schema(), set()
    for name, section in schema["properties"].items():
        for option in _options(section, None):
            for key, value in option.get("properties", {}).items():
                for inner in _options(value, None):
                    listed = inner.get("type") == "array"
                    inner = _resolved(inner.get("items", {})) if listed else inner
                    path = f"{name}.{key}[]" if listed else f"{name}.{key}"
                    if "properties" in inner and not inner.get("additionalProperties", False) and path not in seen:
                        seen.add(path)
                        yield path, path, _one_line(inner["description"]), list(_keys(inner, names))


def aliases_of(section: str, key: str) -> list[tuple[str, str]]:
    """Return (spelling, note) of every other spelling of a key; `section` as `sections` writes it."""
    wanted = f"{section}.{key}"
    return [(written(alias.spelling), alias.note) for alias in ALIASES if written(alias.key) == wanted]


def written(path: Path) -> str:
    """Return an alias' path with `[]` for "each".

    >>> written(("workers", EACH, "memory"))
    'workers[].memory'
    """
    return key_of(path).replace(f".{EACH}", "[]")


def families(section: str) -> dict[str, str]:
    """Return the keys of a section's model that take a name alone, with its family."""
    properties = json_schema()["$defs"][section]["properties"]
    return {
        key: option["x-names"]
        for key, schema in properties.items()
        for option in _options(schema, None)
        if "x-names" in option and "x-else" not in option
    }


def words(schema: Schema, names: Names = NO_NAMES) -> str:
    """Describe a schema in words; for a name, with those in `names`.

    >>> words({"type": "integer", "minimum": 1, "maximum": 9})
    'a whole number from 1 to 9'
    >>> words({"x-names": "codec", "x-else": "magic"}, {"codec": ["none", "fp16"]})
    'none, fp16 or magic'
    """
    schema = _resolved(schema)
    if schema.get("x-names") in names:
        return _one_of([*names[schema["x-names"]], *([schema["x-else"]] if "x-else" in schema else [])])
    if "x-expected" in schema:
        return str(schema["x-expected"])
    if "anyOf" in schema:
        return " or ".join(words(option, names) for option in schema["anyOf"])
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return _one_of(schema["enum"])
    match schema.get("type"):
        case "integer":
            return f"a whole number{_range(schema)}"
        case "number":
            return f"a number{_range(schema)}"
        case "array" if "prefixItems" in schema:
            items = schema["prefixItems"]
            return f"a list of {len(items)} values, each {words(items[0], names)}"
        case "array":
            at_least = " with at least one entry" if schema.get("minItems") else ""
            return f"a list{at_least}, each {words(schema['items'], names)}"
        case other:
            plain = {"boolean": "true or false", "null": "null", "string": "text", "object": "a section of keys"}
            return plain.get(str(other), "a value")


def _one_of(listed: Sequence[object]) -> str:
    *first, last = map(str, listed)
    return f"{', '.join(first)} or {last}" if first else last


def _range(schema: Schema) -> str:
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if high == MAX_COUNT:
        high = None  # a technical limit, of no interest
    if low is not None and high is not None:
        return f" from {_plain(low)} to {_plain(high)}"
    bounds = [("at least", low), ("above", above), ("at most", high), ("below", below)]
    text = " and ".join(f"{word} {_plain(bound)}" for word, bound in bounds if bound is not None)
    return f" {text}" if text else ""


def _plain(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


def _keys(section: Schema, names: Names) -> Iterator[Key]:
    required = section.get("required", [])
    for name, schema in section["properties"].items():
        inner = _resolved(schema)
        default = schema.get("default", {} if inner.get("type") == "object" else None)
        yield Key(name, words(schema, names), default, name in required, _one_line(schema.get("description", "")))


def _options(schema: Schema, content: object) -> list[Schema]:
    """Return the alternatives of a schema; of the data sections only the one whose `kind` is given."""
    schema = _resolved(schema)
    members: list[Schema] = schema.get("anyOf") or schema.get("oneOf") or [schema]
    options = [_resolved(member) for member in members]
    kind = content.get("kind") if isinstance(content, dict) else None
    if "discriminator" in schema and isinstance(kind, str):
        options = [option for option in options if option["properties"]["kind"]["const"] == kind] or options
    return options


def _step(schema: Schema, key: str | int) -> Schema | None:
    if isinstance(key, str):
        found = schema.get("properties", {}).get(key)
    else:
        prefix: list[Schema] = schema.get("prefixItems", [])
        found = prefix[key] if key < len(prefix) else schema.get("items")
    return found if isinstance(found, dict) else None


def _resolved(schema: Schema) -> Schema:
    reference = schema.get("$ref", "").removeprefix("#/$defs/")
    return json_schema()["$defs"][reference] if reference else schema


def _one_line(text: str) -> str:
    return " ".join(text.split())
