"""The catalogs of attacks and protections are strict, and load without torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnraise.core.errors import OptionError, UnknownNameError
from barnraise.privacy.attacks.base import PrivacyAttack
from barnraise.privacy.attacks.catalog import ATTACKS, USUAL_PROTECTIONS, parse_protection
from barnraise.privacy.attacks.runner import make_protection


@pytest.mark.parametrize("name", ATTACKS.names())
def test_an_attack_of_the_catalog_is_one(name: str) -> None:
    assert isinstance(ATTACKS.create(name), PrivacyAttack)


@pytest.mark.parametrize("text", [*USUAL_PROTECTIONS, "any_sum:4"])
def test_a_protection_keeps_the_text_that_it_was_made_of(text: str) -> None:
    assert make_protection(text).name == text


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("nois:0.1", UnknownNameError, "did you mean 'noise'"),
        ("noise:0.1:3", OptionError, "takes 1 at most"),
        ("noise:much", OptionError, "write for example 0.01"),
        ("sum:1", OptionError, "2"),
        ("noise:-1", OptionError, "multiplier"),
        ("masked:8", OptionError, "none"),
    ],
)
def test_a_bad_protection_is_refused_with_the_remedy(text: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        parse_protection(text)


def test_a_codec_that_is_unknown_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'int8'"):
        make_protection("codec:int9")


def test_the_catalogs_load_without_torch() -> None:
    code = "import sys, barnraise.privacy.attacks.catalog; sys.exit('torch' in sys.modules or 'scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
