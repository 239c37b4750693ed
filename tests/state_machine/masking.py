"""One random history of a masked list, played by the real machines: members, trustees and a controller.

Members may seal bad shares, mask with other seeds than they sealed, or add anything. They may be missing on the rosters
of all or of some trustees. Up to t trustees lie about sums, refuse, sign rubbish, or stay silent. All trustees and the
controller crash and come back, and messages overtake each other. A controller may be hostile instead: see
`HostileHost`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from barnraise.privacy.masking.choosing import Chosen
from barnraise.privacy.masking.expand import add_streams, fresh_seed
from barnraise.privacy.masking.lists import MemberEntry, MemberList, entry_of
from barnraise.privacy.masking.packing import pack
from barnraise.privacy.masking.payload import MaskedUpdate, mask, parse, told_by
from barnraise.privacy.masking.release import (
    AskEndorsement,
    AskMasks,
    ListAborted,
    ListMade,
    ListStatus,
    ReleaseAction,
    ReleaseMachine,
    TakeOff,
)
from barnraise.privacy.masking.sealing import KEY_BYTES
from barnraise.privacy.masking.sums import GroupSums, expanded, sums_digest
from barnraise.privacy.masking.terms import HEADER, MaskTerms
from barnraise.privacy.masking.trustee import Endorsement, Expansion, ListRefused, TrusteeDecision, TrusteeMachine
from barnraise.privacy.masking.vetting import EntriesChosen, VettingMachine

from ..maskings import listed, member_signer, origin, terms, trustee
from ..maskings import signatures as signed_by

SHAPES = [(4, 1), (4, 1), (5, 1), (7, 2), (8, 2)]
MEMBER_LIES = ["share", "commitment", "mask", "huge"]
TRUSTEE_LIES = ["word", "noise", "checks only", "refuse", "silent", "rubbish", "equivocate"]


class Crash(Exception):
    """A process dies."""


@dataclass
class Process:
    """A trustee's process: its machine is folded again from its journal after a crash."""

    number: int
    terms: MaskTerms
    dice: random.Random
    lie: str = ""
    crashes: float = 0.0
    known: int = 40  # members on its roster
    journal: list[TrusteeDecision] = field(default_factory=list)
    machine: TrusteeMachine = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.machine = trustee(self.number, self.terms, self._record, list(self.journal), members=self.known)

    def call(self, ask: Callable[[TrusteeMachine], Any]) -> Any:
        """Ask the machine, which may crash before or after it records a decision; None: no answer came."""
        try:
            return ask(self.machine)
        except Crash:
            self.start()
            return None

    def _record(self, decision: TrusteeDecision) -> None:
        if self.dice.random() < self.crashes:
            raise Crash
        self.journal.append(decision)
        if self.dice.random() < self.crashes:
            raise Crash


@dataclass
class Members:
    """The members of a history: their updates, the sums that are left when the sealed seeds are taken off, and lies."""

    terms: MaskTerms
    updates: list[MaskedUpdate]
    plain: list[np.ndarray]
    lies: dict[int, str]

    @classmethod
    def draw(cls, dice: random.Random, them: MaskTerms, count: int, liars: int) -> Members:
        lies = {number: dice.choice(MEMBER_LIES) for number in dice.sample(range(count), liars)}
        updates, plain = [], []
        for number in range(count):
            values = np.array([dice.uniform(-1, 1) for _ in range(them.size)], np.float32)
            words = them.ring.quantise(values, dice.randint(1, them.ring.most_weight))
            if lies.get(number) == "huge":
                words = np.array([dice.randrange(them.ring.mask + 1) for _ in words], them.ring.dtype)
            left = words.copy()
            payload = bytearray(mask(them, origin(number), words, member_signer(number)))
            update = parse(payload, them)
            if (lie := lies.get(number)) in ("share", "commitment", "mask"):
                update, left = spoilt(dice, update, left, number, lie)
            updates.append(update)
            plain.append(left)
        return cls(them, updates, plain, lies)

    def exact(self, members: MemberList) -> list[list[int]]:
        """Return the words that must remain of each group of a list."""
        sums = []
        for group in members.groups:
            total = np.zeros(self.terms.num_words, self.terms.ring.dtype)
            for place in group:
                self.terms.ring.add(total, self.plain[members.entries[place].assignment])
            sums.append(total.tolist())
        return sums


def spoilt(
    dice: random.Random, update: MaskedUpdate, left: np.ndarray, number: int, lie: str
) -> tuple[MaskedUpdate, np.ndarray]:
    """Return an update with a lie, which its member signed, and what is left once its sealed seeds are taken off."""
    it = update.terms
    assert it.committee is not None
    payload = bytearray(b"".join((it.header, update.shares[0][:KEY_BYTES], update.commitments)))
    shares = [bytearray(share[KEY_BYTES:]) for share in update.shares]
    words = update.read()
    if lie == "share":
        for one in dice.sample(range(it.committee.size), dice.randint(1, it.committee.size)):
            shares[one][dice.randrange(len(shares[one]))] ^= 1
    if lie == "commitment":
        payload[HEADER.size + KEY_BYTES + dice.randrange(len(update.commitments))] ^= 1
    if lie == "mask":
        before = words.copy()
        add_streams(words, [fresh_seed()], it.ring.mask)
        left = left.copy()
        it.ring.add(left, words)
        it.ring.subtract(left, before)
    packed = pack(words, it.ring.bits)
    commitments = bytes(payload[HEADER.size + KEY_BYTES :])
    draft = parse(bytes(payload) + b"".join(map(bytes, shares)) + bytes(64) + packed, it)
    told = told_by(it, origin(number), commitments, draft.words_digest)
    signature = bytes.fromhex(member_signer(number).sign(told))
    return parse(bytes(payload) + b"".join(map(bytes, shares)) + signature + packed, it), left


class History:
    """One list from its members to the sums or the abort, under an honest controller."""

    def __init__(self, seed: object, *, faults: bool = True) -> None:
        self.dice = dice = random.Random(str(seed))
        m, t = dice.choice(SHAPES)
        members = dice.randint(3, 8)
        self.terms = terms(3, m=m, t=t, value_bits=dice.choice([4, 8, 12]), members=8)
        self.committee = self.terms.committee
        assert self.committee is not None
        self.members = Members.draw(dice, self.terms, members, dice.choice([0, 0, 1, 2]) if faults else 0)
        lying = dice.sample(range(m), dice.randint(0, t)) if faults else []
        crashes, self.drops = (dice.choice([0.0, 0.2]), dice.choice([0.0, 0.05, 0.3])) if faults else (0.0, 0.0)
        self.known = members - (dice.choice([0, 0, 0, 1, 2]) if faults else 0)
        listing = dice.sample(range(m), dice.choice([m, m, dice.randint(0, m)]))
        self.trustees = [
            Process(
                number=n,
                terms=self.terms,
                dice=dice,
                lie=dice.choice(TRUSTEE_LIES) if n in lying else "",
                crashes=crashes,
                known=self.known if n in listing else members,
            )
            for n in range(m)
        ]
        self.reachable = set(range(m))
        self.group = dice.choice([0, 0, 2, 3])
        self.vets = dice.random() < 0.7
        self.restarts = 0
        self.sums: list[list[int]] | None = None
        self.end: ListMade | ListAborted | None = None

    def play(self) -> None:
        """Play until the list is made or aborted."""
        chosen = self._choose()
        if isinstance(chosen, ListAborted):
            self.end = chosen
            return
        self.proven = chosen.proven
        entries = chosen.assignments
        least = max(2, self.group)
        if len(entries) < least:
            self.end = ListAborted("too few members", ())
            return
        self.list = listed(
            self.terms,
            [],
            group=self.group,
            entries=tuple(entry_of(self.members.updates[one], origin(one)) for one in entries),
        )
        self._controller()
        while self.end is None:
            self._step()

    def shares(self, number: int, members: MemberList) -> list[bytes]:
        return [self.members.updates[entry.assignment].shares[number] for entry in members.entries]

    def _choose(self) -> Chosen | ListAborted:
        """Let trustees judge the entries in any order, while they come and go."""
        assert self.committee is not None
        dice, everyone = self.dice, range(len(self.members.updates))
        if not self.vets:
            return Chosen(tuple(everyone), (), ())
        machine, draft = (
            VettingMachine(self.committee, everyone, self.reachable),
            listed(self.terms, self.members.updates),
        )
        open_asks = machine.start()
        while True:
            ask = open_asks.pop(dice.randrange(len(open_asks))) if open_asks else None
            if isinstance(ask, EntriesChosen):
                return ask.chosen
            if isinstance(ask, ListAborted):
                return ask
            if ask is None:
                open_asks = machine.hurry() or [ListAborted("too few trustees judged", ())]
            elif dice.random() < self.drops:
                open_asks += [*machine.vanished(ask.trustee), *machine.returned(ask.trustee)]
            elif (lie := self.trustees[ask.trustee].lie) == "rubbish":
                open_asks += machine.refused(ask.trustee, "an answer that is none")
            elif lie != "silent":
                answer = self.trustees[ask.trustee].machine.vet(draft, self.shares(ask.trustee, draft))
                faults = set(dice.sample(everyone, 2)) if lie == "refuse" else set(answer.faults) - answer.unlisted
                open_asks += machine.vetted(ask.trustee, faults, answer.unlisted)

    def _controller(self) -> None:
        """Start the controller's machine of the list, also after a crash."""
        assert self.committee is not None
        self.machine = ReleaseMachine(self.committee, self.reachable)
        self.total = GroupSums(self.terms, self.list.groups)
        for place, entry in enumerate(self.list.entries):
            self.total.add(place, self.members.updates[entry.assignment])
        self.open: list[ReleaseAction] = []
        self.received: dict[tuple[tuple[int, ...], str], bytes] = {}
        self._do(self.machine.start())

    def _step(self) -> None:
        dice = self.dice
        if dice.random() < self.drops:
            one = dice.randrange(len(self.trustees))
            event = self.machine.vanished if one in self.reachable else self.machine.returned
            self.reachable ^= {one}
            if one not in self.reachable:
                self.open = [ask for ask in self.open if ask.trustee != one]  # type: ignore[union-attr]
            self._do(event(one))
            return
        if self.drops and self.restarts < 3 and dice.random() < 0.03:
            self.restarts += 1
            self._controller()
            return
        if self.open:
            self._deliver(self.open.pop(dice.randrange(len(self.open))))
            return
        away = sorted(set(range(len(self.trustees))) - self.reachable)
        if away and dice.random() < 0.9:
            one = dice.choice(away)
            self.reachable.add(one)
            self._do(self.machine.returned(one))
        else:
            self._do(self.machine.expire("its time is over"))

    def _deliver(self, ask: Any) -> None:
        process = self.trustees[ask.trustee]
        if process.lie == "silent":
            return self._do(self.machine.refused(ask.trustee, "no answer in time"))
        if process.lie == "refuse":
            return self._do(self.machine.refused(ask.trustee, "it does not like it"))
        shares = self.shares(ask.trustee, self.list)
        if isinstance(ask, AskEndorsement):
            answer = process.call(lambda machine: machine.endorse(self.list, shares))
        else:
            signatures = self.machine.signatures
            answer = process.call(lambda machine: machine.give(self.list, shares, signatures, [ask.seeds]))
        if answer is None:  # it crashed: the connection is lost and found again
            actions = self.machine.vanished(ask.trustee) + self.machine.returned(ask.trustee)
            return self._do(actions)
        if isinstance(answer, ListRefused):
            return self._do(self.machine.refused(ask.trustee, answer.reason))
        if isinstance(answer, Endorsement):
            return self._endorsed(process, answer.signature)
        assert isinstance(answer, Expansion)
        (packed,) = [b"".join(portion) for portion in expanded(answer)]
        packed = self._told(process, packed, ask.send)
        digest = sums_digest([packed])
        if ask.send:
            self.received[ask.seeds, digest] = packed
        return self._do(self.machine.answered(ask.trustee, ask.seeds, digest, ask.send))

    def _endorsed(self, process: Process, signature: str) -> None:
        """Take an endorsement as the shell does: what is none is a refusal."""
        if process.lie == "rubbish":
            signature = "ab" * 64
        name = process.machine.name
        assert self.committee is not None
        if self.list.endorsers({name: signature}, self.committee) != {process.number}:
            return self._do(self.machine.refused(process.number, "a signature that is none"))
        return self._do(self.machine.endorsed(process.number, signature))

    def _told(self, process: Process, packed: bytes, send: bool) -> bytes:
        """Return the sums that a trustee claims."""
        lie = process.lie
        if lie == "word" or (lie == "checks only" and not send) or (lie == "equivocate" and self.dice.random() < 0.5):
            changed = bytearray(packed)
            changed[self.dice.randrange(len(changed))] ^= 1
            return bytes(changed)
        return self.dice.randbytes(len(packed)) if lie == "noise" else packed

    def _do(self, actions: list[ReleaseAction]) -> None:
        for action in actions:
            if isinstance(action, AskEndorsement | AskMasks):
                assert action.trustee in self.reachable
                self.open.append(action)
            elif isinstance(action, TakeOff):
                self.total.subtract(self.received[action.seeds, action.digest])
            else:
                assert self.end is None
                self.end = action
                if isinstance(action, ListMade):
                    self.sums = [total.tolist() for total in self.total.sums]

    def check(self) -> None:
        """Assert that the sums are exact or the list aborted, and that no honest actor was blamed."""
        assert self.end is not None
        assert all(self.trustees[one].lie for one in self.end.liars)
        assert all(self.members.lies.get(one) in ("share", "commitment") for one in self.proven)
        assert self.committee is not None
        honest = sum(one.known == self.known and not one.lie for one in self.trustees)
        if isinstance(self.end, ListMade):
            if honest > self.committee.size - self.committee.quorum:
                assert all(entry.assignment < self.known for entry in self.list.entries), "a member that none listed"
            assert self.machine.status is ListStatus.MADE
            assert self.sums == self.members.exact(self.list)
        else:
            assert self.end.reason
            assert self.sums is None


class HostileHost:
    """A host that wants the update of one member: it shows trustees any lists, and forges what it can.

    It holds all masked updates, and has t trustees on its side, which sign everything and tell all seeds.
    """

    def __init__(self, seed: object) -> None:
        self.dice = dice = random.Random(str(seed))
        self.m, self.t = dice.choice(SHAPES)
        self.terms = terms(3, m=self.m, t=self.t, value_bits=8, members=8)
        self.members = Members.draw(dice, self.terms, 7, 0)
        bought = set(dice.sample(range(self.m), self.t))
        self.honest = [
            Process(n, self.terms, dice, crashes=dice.choice([0.0, 0.2])) for n in range(self.m) if n not in bought
        ]
        self.bought = bought
        self.lists = self._lists()
        self.signatures: dict[str, dict[str, str]] = {one.digest: {} for one in self.lists}
        self.given: dict[str, set[int]] = {}

    def _lists(self) -> list[MemberList]:
        """Return lists that all hold the victim, node 0, most of them forbidden in some way."""
        dice = self.dice
        entries = [entry_of(one, origin(n)) for n, one in enumerate(self.members.updates)]
        first = listed(self.terms, [], entries=tuple(entries))
        stranger = msgspec.structs.replace(entries[1], node="n99")
        forged = msgspec.structs.replace(entries[1], commitments=dice.randbytes(len(entries[1].commitments)))
        chosen = [entries[:1], entries[:2], entries[: dice.randint(2, 6)], [entries[0], stranger], [entries[0], forged]]
        chosen += [[entries[0], entries[0]], [entries[0], dice.choice(entries[1:])]]
        changes: list[dict[str, Any]] = [{}, {"group": 1}, {"group": 2}, {"version": 9}, {"support": 4}]
        lists = [first]
        for number, some in enumerate(dice.sample(chosen, 3), 1):
            nonce = first.nonce if dice.random() < 0.2 else f"{number:064x}"
            lists.append(listed(self.terms, [], entries=tuple(some), nonce=nonce, **dice.choice(changes)))
        dice.shuffle(lists)
        return lists

    def play(self) -> None:
        """Show lists to trustees in any order, again and again, and ask for masks with all signatures there are."""
        for _ in range(40):
            members, process = self.dice.choice(self.lists), self.dice.choice(self.honest)
            shares = self._shares(process.number, members)
            show = self._endorse if self.dice.random() < 0.5 else self._ask
            show(process, members, shares)

    def _endorse(self, process: Process, members: MemberList, shares: list[bytes]) -> None:
        answer = process.call(lambda machine: machine.endorse(members, shares))
        if isinstance(answer, Endorsement):
            self.signatures[members.digest][answer.trustee] = answer.signature

    def _shares(self, number: int, members: MemberList) -> list[bytes]:
        """Return the members' shares, now and then with one that another member sealed."""
        shares = [self.members.updates[entry.assignment].shares[number] for entry in members.entries]
        if self.dice.random() < 0.1:
            self.dice.shuffle(shares)
        return shares

    def _ask(self, process: Process, members: MemberList, shares: list[bytes]) -> None:
        assert self.terms.committee is not None
        signatures = dict(self.signatures[members.digest])
        signatures |= signed_by(members, self.bought)
        other = self.dice.choice(self.lists)
        for name, signature in self.signatures[other.digest].items():
            signatures.setdefault(name, signature)  # from another list
        seeds = self.terms.committee.known[process.number]
        answer = process.call(lambda machine: machine.give(members, shares, signatures, [seeds]))
        if isinstance(answer, Expansion):
            self.given.setdefault(members.digest, set()).add(process.number)

    def check(self) -> None:
        """Assert that each honest trustee gave the masks of one list, and all of them of the same one."""
        assert len(self.given) <= 1
        for digest in self.given:
            members = next(one for one in self.lists if one.digest == digest)
            nodes = {entry.node for entry in members.entries}
            assert min(len(group) for group in members.groups) >= 2
            assert len(nodes) == len(members.entries)
            assert all(is_real(self.terms, entry) for entry in members.entries)


def is_real(it: MaskTerms, entry: MemberEntry) -> bool:
    return entry.is_signed(it.run, it.digest, member_signer(entry.assignment).public)
