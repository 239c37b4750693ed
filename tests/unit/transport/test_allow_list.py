"""The host's list of keys: what stands in it, and what is said of a line that cannot be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zmq.utils import z85

from barnraise.core.errors import InputError
from barnraise.transport import Keys
from barnraise.transport.allow_list import line_of, parse

KEYS = [Keys.generate().public for _ in range(3)]
HEX = z85.decode(KEYS[0].encode()).hex()


def test_keys_stand_one_a_line_with_whatever_is_said_of_them() -> None:
    text = f"# the lab\n\n{line_of(KEYS[0], 'ann')}\r\n  {line_of(KEYS[1], 'a # b')}\n{HEX.upper()}\n#\n"
    assert parse(text, "allow") == set(KEYS[:2])
    assert parse("", "allow") == set()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (HEX[:-1], "has 63 digits, but a key has 64"),
        (HEX + "0 ann", "has 65 digits"),
        (KEYS[0], f"is a key in another form; write it as {HEX}"),
        ("ann " + HEX, "line 2: 'ann' is no key: write 64 hexadecimal digits"),
        ("\x1b[2J\u202e" + "x" * 10**6, "is no key"),
    ],
    ids=["short", "long", "z85", "name first", "hostile"],  # keys are new in each process
)
def test_a_line_that_is_no_key_is_named_with_what_it_should_be(line: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(f"{line_of(KEYS[1], 'bob')}\n{line}\n", "allow")
    told = str(caught.value)
    assert reason in told
    assert "allow, line 2" in told
    assert told.isprintable()
    assert len(told) < 400


@given(st.text(max_size=300))
def test_any_text_is_a_list_or_refused(text: str) -> None:
    found, told = frozenset[str](), ""
    try:
        found = parse(text, "allow")
    except InputError as error:
        told = str(error)
    assert told.isprintable()
    assert all(len(key) == 40 for key in found)
