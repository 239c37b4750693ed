from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.core.errors import CorruptionError, InviteError
from barnraise.transport import Invite, Keys, TokenBook, proof

SERVER, WORKER = Keys.generate().public, Keys.generate().public
NONCE = "0f" * 32
NOW = 1_800_000_000.0


def new_invite(**fields: object) -> Invite:
    invite = Invite.create("lab.example.org", 7001, "sat-neo", SERVER, now=NOW, lifetime=3600)
    return dataclasses.replace(invite, **fields)


class TestInvite:
    @given(
        host=st.sampled_from(["127.0.0.1", "lab.example.org", "::1", "2001:db8::7"]),
        port=st.integers(0, 65535),
        run=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", fullmatch=True),
        secret=st.binary(min_size=32, max_size=32),
        uses=st.integers(1, 2**32 - 1),
        role=st.sampled_from(["worker", "relay"]),
    )
    def test_is_one_line_of_text(self, **fields: object) -> None:
        invite = new_invite(**fields)
        line = str(invite)
        assert line.isascii()
        assert line.isprintable()
        assert " " not in line
        assert Invite.parse(line, NOW) == invite

    def test_names_the_address_to_dial(self) -> None:
        assert new_invite().uri == "zmq://lab.example.org:7001"
        assert new_invite(host="::1").uri == "zmq://[::1]:7001"

    def test_may_be_broken_over_lines_by_a_terminal(self) -> None:
        invite = new_invite()
        line = str(invite)
        assert Invite.parse(f"  {line[:50]}\n{line[50:90]}\r\n  {line[90:]}\n", NOW) == invite

    def test_every_truncation_is_noticed(self) -> None:
        line = str(new_invite())
        for end in range(len(line)):
            with pytest.raises(InviteError, match=r"incomplete or altered|must start with"):
                Invite.parse(line[:end], NOW)

    @given(st.data())
    def test_every_alteration_is_noticed(self, data: st.DataObject) -> None:
        line = str(new_invite())
        at = data.draw(st.integers(0, len(line) - 1))
        other = data.draw(st.characters(min_codepoint=33, max_codepoint=126).filter(lambda c: c != line[at]))
        with pytest.raises(InviteError):
            Invite.parse(line[:at] + other + line[at + 1 :], NOW)

    @given(st.text(max_size=200) | st.text(max_size=200).map("barnraise://h:1/r#{}".format))
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(InviteError):
            Invite.parse(text, NOW)

    def test_expires(self) -> None:
        line = str(new_invite())
        Invite.parse(line, NOW + 3599)
        with pytest.raises(InviteError, match=r"expired at 2027-01-15 09:00 UTC and this machine's clock says"):
            Invite.parse(line, NOW + 3600)

    @pytest.mark.parametrize(("uses", "lifetime"), [(0, 60.0), (1, 0.0), (-1, 60.0)])
    def test_an_invite_that_admits_no_node_is_refused(self, uses: int, lifetime: float) -> None:
        with pytest.raises(InviteError, match="admits no machine"):
            Invite.create("h", 1, "r", SERVER, now=NOW, lifetime=lifetime, uses=uses)

    def test_shows_no_secret_by_accident(self) -> None:
        invite = new_invite(secret=b"s" * 32)
        assert "sss" not in repr(invite)


class TestTokenBook:
    def consume(self, book: TokenBook, invite: Invite, **changes: object) -> None:
        """An enrolment with a good proof, where `changes` say what the controller sees instead."""
        given_proof = proof(invite.secret, SERVER, WORKER, "node", NONCE)
        seen = {"server_key": SERVER, "worker_key": WORKER, "name": "node", "nonce": NONCE, "now": NOW}
        token = str(changes.pop("token", invite.token))
        book.spend(book.verify(token, str(changes.pop("proof", given_proof)), **(seen | changes)).id)

    def book(self, invite: Invite) -> TokenBook:
        book = TokenBook()
        book.add(invite)
        return book

    def test_lets_as_many_in_as_the_invite_says(self) -> None:
        invite = new_invite(uses=2)
        book = self.book(invite)
        self.consume(book, invite)
        self.consume(book, invite)
        with pytest.raises(InviteError, match="used up"):
            self.consume(book, invite)

    @pytest.mark.parametrize(
        "changes",
        [
            {"worker_key": Keys.generate().public},
            {"server_key": Keys.generate().public},
            {"name": "other"},
            {"nonce": "0e" * 32},
            {"proof": "00" * 32},
            {"proof": ""},
            {"proof": "\u00e9"},
            {"token": "unknown"},
            {"name": "nod", "nonce": "e" + NONCE},
        ],
    )
    def test_a_proof_is_good_for_one_key_name_and_controller_only(self, changes: dict[str, object]) -> None:
        invite = new_invite()
        book = self.book(invite)
        with pytest.raises(InviteError, match="not issued by this run"):
            self.consume(book, invite, **changes)
        self.consume(book, invite)

    def test_an_expired_invite_admits_no_node(self) -> None:
        invite = new_invite()
        with pytest.raises(InviteError, match="expired"):
            self.consume(self.book(invite), invite, now=NOW + 3600)

    def test_knows_no_secret(self) -> None:
        invite = new_invite()
        text = json.dumps(self.book(invite).to_dict())
        assert invite.secret.hex() not in text

    def test_survives_a_restart(self) -> None:
        invite = new_invite(uses=2)
        book = self.book(invite)
        self.consume(book, invite)
        book = TokenBook.from_dict(json.loads(json.dumps(book.to_dict())))
        self.consume(book, invite)
        with pytest.raises(InviteError, match="used up"):
            self.consume(book, invite)

    @pytest.mark.parametrize(
        "content",
        [
            [],
            {"a": []},
            {"a": {}},
            {"a": {"id": "b", "verifier": "00" * 32, "expires": 1, "uses": 1, "role": "worker"}},
            {"a": {"id": "a", "verifier": "00" * 31, "expires": 1, "uses": 1, "role": "worker"}},
            {"a": {"id": "a", "verifier": "zz" * 32, "expires": 1, "uses": 1, "role": "worker"}},
            {"a": {"id": "a", "verifier": "00" * 32, "expires": 1, "uses": "1", "role": "worker"}},
        ],
    )
    def test_a_damaged_book_is_refused(self, content: dict[str, dict[str, object]]) -> None:
        with pytest.raises(CorruptionError, match="invite again"):
            TokenBook.from_dict(content)


def test_proof_is_pinned() -> None:
    """The openssl command computed this from the formula in `invite`: later versions must agree."""
    computed = proof(b"s" * 32, "x" * 40, "x" * 40, "node", "00" * 32, "ab" * 32)
    assert computed == "9821e80cfead71b8c7f9813ad5961be7880071f36d1aa12a4859e6862614537c"


def test_a_book_keeps_what_was_taken_back() -> None:
    invite, book = new_invite(), TokenBook()
    book.add(invite)
    book.revoke(invite.token)
    book = TokenBook.from_dict(book.to_dict())
    mark = proof(invite.secret, invite.server_key, "worker", "name", "nonce")
    with pytest.raises(InviteError, match="taken this invite back"):
        book.verify(
            invite.token, mark, server_key=invite.server_key, worker_key="worker", name="name", nonce="nonce", now=0.0
        )


def test_a_message_about_an_invite_does_not_show_its_secret() -> None:
    secret = str(new_invite()).split("#")[1]
    with pytest.raises(InviteError) as refused:
        Invite.parse(f"arnraise://h:1/run#{secret}", 0.0)
    assert secret[:10] not in str(refused.value)
