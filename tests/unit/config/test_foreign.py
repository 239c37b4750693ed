"""Keys of other trainers: each is refused with a key that there is here, or with why there is none."""

from __future__ import annotations

import re

import pytest

from barnraise.config import load
from barnraise.config.aliases import ALIASES
from barnraise.config.foreign import FOREIGN, NAMED, TRAINERS, Foreign
from barnraise.config.keys import sections
from barnraise.core.errors import RunFileError

OURS = {f"{section}.{key.name}" for _, section, _, keys in sections() for key in keys} | {"workers"}
SPELLINGS = {key.rpartition(".")[2] for key in OURS} | {str(alias.spelling[-1]) for alias in ALIASES}
IDS = [foreign.name for foreign in FOREIGN]


def test_each_name_is_there_once_and_is_none_of_ours() -> None:
    assert len(NAMED) == len(FOREIGN) >= 30
    assert not SPELLINGS & set(NAMED)
    assert {foreign.trainer for foreign in FOREIGN} == set(TRAINERS)


@pytest.mark.parametrize("foreign", FOREIGN, ids=IDS)
def test_every_named_replacement_of_a_foreign_key_exists(foreign: Foreign) -> None:
    named = set(re.findall(r"\b(?:run|data|model|controller|training|workers\[\])\.[a-z_]+", foreign.note))
    assert named | {foreign.key} - {""} <= OURS
    assert foreign.key or foreign.note


@pytest.mark.parametrize("foreign", FOREIGN, ids=IDS)
@pytest.mark.parametrize("section", ["training", "data", ""])
def test_it_is_refused_with_what_to_write(foreign: Foreign, section: str) -> None:
    content = {"model": {"architecture": "gpt2"}, "data": {"kind": "text", "files": ["a"]}, "training": {}}
    target = content[section] if section else content
    target[foreign.name] = 4
    with pytest.raises(RunFileError) as caught:
        load(content)
    assert str(caught.value).endswith(f"{foreign.name}: unknown key; it is {foreign.hint}")
