"""Tokens of a dashboard: each opens what its role may see, until it expires, and none can be made up."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.core.errors import InputError
from barnraise.dashboard.passes import GUEST, HOST, NODE, OBSERVER, Pass, read, signed

KEY = "ab" * 32


def test_roles_see_what_is_theirs() -> None:
    assert read(KEY, KEY) == Pass(HOST)
    assert read(KEY, signed(KEY, OBSERVER, 1.0)) == Pass(OBSERVER)
    assert read(KEY, signed(KEY, NODE, math.inf, "Ann's .box")) == Pass(NODE, "Ann's .box")
    host, observer, guest = Pass(HOST), Pass(OBSERVER), Pass(GUEST)
    assert (host.acts, host.sees_names, host.sees_run) == (True, True, True)
    assert (observer.acts, observer.sees_names, observer.sees_run) == (False, False, True)
    assert (guest.acts, guest.sees_names, guest.sees_run) == (False, False, False)


def test_a_link_expires() -> None:
    token = signed(KEY, OBSERVER, 1.0, now=1000.0)
    assert read(KEY, token, now=1000.0 + 86_399).role == OBSERVER
    with pytest.raises(InputError, match="has expired: ask the host"):
        read(KEY, token, now=1000.0 + 86_400)


def test_a_token_of_another_run_or_with_another_role_is_wrong() -> None:
    token = signed(KEY, OBSERVER, 1.0)
    for wrong in (
        signed("cd" * 32, OBSERVER, 1.0),
        token.replace("observer", "node"),
        token[:-1],
        "",
        "a.b.c.d",
        "x" * 9999,
    ):
        with pytest.raises(InputError, match="is wrong: ask the host"):
            read(KEY, wrong)


@given(st.text(max_size=80))
def test_no_text_but_the_key_opens_anything(text: str) -> None:
    with pytest.raises(InputError):
        read(KEY, text)
