"""Making a version of masked updates: its list, the endorsements of trustees, and the sums of masks.

    closed -> listed -> vetted -> released (on the ledger) -> endorsed by a quorum -> unmasked (on the ledger) -> made

Trustees judge the entries of a draft first. Entries that more of them refuse than may collude are left out, and their
nodes are sentenced. The list is then fixed on the ledger before any trustee signs it, and trustees sign each update in
one list alone. So a controller that was killed asks again about the same list, and gets the same answers. Where too few
trustees answer in time, or too many refuse, the list is given up: the version is the one before, and the rows are done
again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from barnraise.controller.state.actions import Slot
from barnraise.controller.state.effects import Aggregate, Listed, ListMembers, Member, Unmade
from barnraise.controller.state.events import Changed, Event, Faulty
from barnraise.controller.state.part import Context, Part, Steps, TaskHold
from barnraise.controller.state.settings import MaskSettings
from barnraise.controller.state.state import Closing, NodeState, State, Work
from barnraise.controller.versions.endorsing import (
    AboutList,
    Confirming,
    Endorsing,
    OpenList,
    SendingMasks,
    Trustees,
    Vetting,
)
from barnraise.core.types import ANSWERS, Seats
from barnraise.core.units import count_text
from barnraise.ledger import notes
from barnraise.ledger.decisions import Change, Decision, Judged, NodeChanged, Noted
from barnraise.privacy.masking.release import (
    AskEndorsement,
    AskMasks,
    ListAborted,
    ListMade,
    ReleaseAction,
    ReleaseMachine,
    TakeOff,
)
from barnraise.privacy.masking.seats import committee_of
from barnraise.privacy.masking.vetting import AskVerdict, EntriesChosen, VettingAction, VettingMachine
from barnraise.trust.roles import TRUSTEE

MALFORMED_SEEDS = "more trustees than may collude found its seeds to be false"
NOT_LISTED = (
    "its node is not on the rosters of members of more trustees than may collude, or not with this key: their owners "
    "add the line that its `join` printed, and start their trustees again"
)
IN_DISPUTE = "trustees do not agree whether its seeds are false, and no quorum accepts it with the others"
VETTING_SHARE = 0.25
"""Share of the patience after which entries are chosen by the answers of a quorum."""

WRONG_MASKS = "more trustees than may collude computed other sums of masks than it did"


def slots_for_version(state: State, masks: MaskSettings | None) -> tuple[Slot, ...]:
    """Return the slots of the buffer for a version: of masked updates the first of each node, of `masks.most` nodes."""
    slots = tuple(slot for slots in state.buffer.slots.values() for slot in slots.values())
    if masks is None:
        return slots
    found = []
    for slot in slots[: masks.most]:
        for later in slot.contributions[1:]:
            slot = slot.without(later.assignment, state.merging[later.assignment].tokens, True)
        found.append(slot)
    return tuple(found)


class Unmasking(Part):
    """Keeps the list that trustees are asked about, since when, and the sums of masks that have come."""

    def __init__(
        self,
        context: Context,
        trustees: Trustees,
        vetting: Vetting,
        endorsing: Endorsing,
        confirming: Confirming,
        sending: SendingMasks,
    ) -> None:
        super().__init__(context)
        self.settings, self.trustees = context.settings.payloads.protection.masks, trustees
        self.vetting, self.endorsing, self.confirming, self.sending = vetting, endorsing, confirming, sending
        self.list: OpenList | None = None
        self.making = False  # whether the version is being made of the sums
        self.since = math.inf  # when the list was complete
        self._seats: Seats = ()  # the seats that the list is made for
        self.members: tuple[Member, ...] = ()
        self._vetted: frozenset[int] = frozenset()  # assignments that trustees accept
        self._unlisted: set[str] = set()  # nodes that too few trustees know
        self._reachable: set[int] = set()
        self._dropped: dict[str, str] = {}  # trustees that gave tasks back, with the reason; "": they were lost
        self._asked: list[AskMasks] = []  # questions that wait for a trustee to be free
        self._sums: list[int] = []  # the assignments that brought the sums

    @property
    def is_waiting(self) -> bool:
        """Return whether the closed version waits for trustees, and nothing is under way here."""
        return self.state.closing is not None and self.state.sums and not self.making

    def hold(self, node: NodeState, now: float) -> TaskHold | None:
        """Return the hold of a node whose updates no version takes, until a trustee comes back, with another roster."""
        return TaskHold(math.inf, NOT_LISTED) if node.id in self._unlisted else None

    def needs(self, node: str) -> bool:
        """Return whether a trustee, or a member of the last version, is to stay for it though the run is over."""
        closing = self.state.closing
        if closing is None or not self.state.sums:
            return False
        member = any(slot.node == node for slot in closing.slots)
        return member or self.state.nodes[node].badge.role == TRUSTEE

    @property
    def waiting_for(self) -> str:
        """Return what the closed version waits for, as a part of a sentence; empty where it waits for no trustees."""
        asked = self.list
        if asked is None or not self.is_waiting:
            return ""
        present = set(self.trustees.present(asked.seats))
        silent = [seat.node for number, seat in enumerate(asked.seats) if number not in present]
        away = f" (away: {', '.join(silent)})" if silent else ""
        if asked.vetting is not None:
            more = count_text(asked.vetting.lacking, "more trustee") if asked.vetting.lacking else "trustees"
            return f"{more} to check its updates{away}"
        if (lacking := asked.committee.quorum - len(asked.machine.signatures)) > 0:
            return f"{count_text(lacking, 'more trustee')} to endorse its list{away}"
        return f"trustees to send the sums of its masks{away}"

    def begin(self) -> Steps:
        """Begin, or begin again after a restart or a change of the list."""
        closing, settings = self.state.closing, self.settings
        assert closing is not None
        self._open(None)
        if settings is None:
            yield self._given_up(closing, "the run file has no section privacy.secure_aggregation any more")
            return
        if lacks := self.trustees.lacks:
            if closing.masks:  # a restart after they were all there: nothing is asked of trustees any more
                yield from self._make(closing)
            else:
                yield self._given_up(closing, lacks)
            return
        numbers, self._seats = closing.contributions, self.trustees.seats
        nodes = len({self.state.merging[number].node for number in numbers})
        if nodes < settings.least and not closing.masks:
            told = f"updates of {nodes} nodes, but masks are removed from those of {settings.least} or more"
            yield self._given_up(closing, told)
            return
        self.members = tuple(self._member(number) for number in numbers)
        about = self.context.settings.run, closing.version, self.state.newest.digest, closing.list_digest
        yield ListMembers(self.context.epoch, *about, self.members, self._seats)

    def _member(self, number: int) -> Member:
        work = self.state.merging[number]
        signer = self.state.nodes[work.node].badge.signer
        return Member(number, work.node, signer, work.base, self.state.record.digests[work.base])

    def _listed(self, event: Listed) -> Steps:
        closing = self.state.closing
        if event.epoch != self.context.epoch or closing is None or closing.version != event.version:
            return
        if faults := event.void | event.lost:
            if closing.masks:
                yield from self._make(closing)  # which members have no proof of
                return
            void = {number: why for number, why in event.void.items() if number > self.state.roster.unseated}
            lost = {number: why for number, why in faults.items() if number not in void}
            yield Unmade(event.epoch, event.version, void, lost)
            return
        assert self.settings is not None
        committee = committee_of(self._seats, self.settings.colluding)
        signers = tuple(member.signer for member in self.members)
        if closing.masks:  # a restart after they were all there: the list is for its members alone
            again = OpenList(event, closing.released, signers, self._seats, committee, ReleaseMachine(committee, ()))
            again.machine.signatures = again.signed_by(closing.endorsements)
            self._open(again)
            yield from self._make(closing)
            return
        self._reachable, self.since = set(self.trustees.present(self._seats)), self.now
        machine = ReleaseMachine(committee, self._reachable)
        asked = OpenList(event, closing.released, signers, self._seats, committee, machine)
        self._open(asked)
        if closing.released or self._vetted.issuperset(closing.contributions):
            yield from self._release(closing, asked)
        else:
            asked.vetting = VettingMachine(committee, closing.contributions, self._reachable)
            asked.due += asked.vetting.start()
        yield Changed()

    def _release(self, closing: Closing, asked: OpenList) -> Steps:
        """Fix the list on the ledger, unless it is there, and ask trustees to endorse it."""
        if not closing.released:
            yield Noted(self.now, notes.VersionReleased(closing.version, closing.list_digest, asked.listed.digest))
        asked.vetting, asked.released = None, closing.released
        asked.machine = ReleaseMachine(asked.committee, self._reachable)
        asked.due = [*asked.machine.start()]

    def _choose(self, closing: Closing, asked: OpenList, action: EntriesChosen) -> Steps:
        """Release the list if all its entries were chosen; else have another one made of those."""
        chosen, members = action.chosen, self.members
        self._vetted = frozenset(chosen.assignments)
        if self._vetted.issuperset(closing.contributions):
            yield from self._release(closing, asked)
            return
        proven, left_out = dict.fromkeys(chosen.proven, MALFORMED_SEEDS), dict.fromkeys(chosen.unlisted, NOT_LISTED)
        dispute = set(closing.contributions) - self._vetted - proven.keys() - left_out.keys()
        self._open(None)
        self._unlisted.update(member.node for member in members if member.assignment in left_out)
        yield Unmade(self.context.epoch, closing.version, proven, left_out | dict.fromkeys(dispute, IN_DISPUTE))
        for member in members:
            if member.assignment in proven:
                yield Faulty(member.node, member.assignment, MALFORMED_SEEDS)

    def _open(self, asked: OpenList | None) -> None:
        """Let the kinds of tasks know of the list that is open."""
        self.list = asked
        for kind in (self.vetting, self.endorsing, self.confirming, self.sending):
            kind.list = asked
        self.making, self._sums, self._asked = False, [], []
        if asked is None:
            self.since = math.inf

    # Answers, and trustees that come and go

    def look(self) -> Steps:
        closing, asked = self.state.closing, self.list
        if asked is None or self.making:
            return
        if closing is None or closing.released != asked.released:  # it was given up
            self._open(None)
            return
        self._notice(asked)
        while asked.due and self.list is asked and not self.making:
            yield from self._carry_out(closing, asked, asked.due.pop(0))
        if self.list is asked and not self.making:
            yield from self._ask_the_free(asked)

    def _notice(self, asked: OpenList) -> None:
        """Tell the machine which trustees came, left, or gave their tasks back."""
        machine, dropped, self._dropped = asked.vetting or asked.machine, self._dropped, {}
        present = set(self.trustees.present(asked.seats))
        for number, seat in enumerate(asked.seats):
            if reason := dropped.get(seat.node):
                asked.due += machine.refused(number, reason)
            elif number in self._reachable and (number not in present or seat.node in dropped):
                asked.due += machine.vanished(number)
                self._reachable.discard(number)
                self._asked = [one for one in self._asked if one.trustee != number]
            if number in present and number not in self._reachable:
                asked.due += machine.returned(number)
        self._reachable = present

    def _carry_out(self, closing: Closing, asked: OpenList, action: ReleaseAction | VettingAction) -> Steps:
        if isinstance(action, AskEndorsement | AskVerdict):
            kind = self.endorsing if isinstance(action, AskEndorsement) else self.vetting
            if self._work_of(asked, action.trustee, kind) is None:
                yield from kind.ask(action.trustee)
        elif isinstance(action, EntriesChosen):
            yield from self._choose(closing, asked, action)
        elif isinstance(action, AskMasks):
            self._asked.append(action)
        elif isinstance(action, TakeOff):
            self._sums.append(asked.came[action.seeds, action.digest])
        elif isinstance(action, ListMade):
            yield Noted(self.now, notes.VersionUnmasked(closing.version, tuple(self._sums), asked.endorsements))
            yield from self._make(closing)
            yield from self._convict(asked, action.liars)
        elif isinstance(action, ListAborted):
            faulty, refusals = asked.found_faulty(), (asked.vetting or asked.machine).refusals
            told = "; ".join(f"{asked.seats[one].node}: {why}" for one, why in sorted(refusals.items()))
            yield self._given_up(closing, f"{action.reason}{f' ({told})' if told else ''}")
            for member in self.members:
                if member.assignment in faulty:
                    yield Faulty(member.node, member.assignment, MALFORMED_SEEDS)
            yield from self._convict(asked, action.liars)

    def _convict(self, asked: OpenList, liars: tuple[int, ...]) -> Steps:
        for liar in liars:
            yield Faulty(asked.seats[liar].node, 0, WRONG_MASKS)

    def _ask_the_free(self, asked: OpenList) -> Steps:
        """Put the questions about masks, one at a time to each trustee."""
        for question in list(self._asked):
            kind = self.sending if question.send else self.confirming
            node = asked.seats[question.trustee].node
            busy = any(self.state.works[number].kind in self._names for number in self.state.nodes[node].open)
            if not busy and question.trustee in self._reachable:
                self._asked.remove(question)
                yield from kind.ask(question.trustee, question.seeds)

    @property
    def _names(self) -> tuple[str, ...]:
        return self.vetting.name, self.endorsing.name, self.confirming.name, self.sending.name

    def _work_of(self, asked: OpenList, number: int, kind: AboutList) -> Work | None:
        """Return the open work of a kind that the trustee of a seat has for this list."""
        works = (self.state.works[one] for one in self.state.nodes[asked.seats[number].node].open)
        return next((work for work in works if work.kind == kind.name and work.base + 1 == asked.version), None)

    def _make(self, closing: Closing) -> Steps:
        self.making = True
        made_of = closing.version, tuple(closing.slots), closing.rate, closing.scales, closing.masks
        yield Aggregate(self.context.epoch, *made_of)

    def _given_up(self, closing: Closing, reason: str) -> Unmade:
        self._open(None)
        return Unmade(self.context.epoch, closing.version, {}, {}, reason)

    # Observations

    def _node_changed(self, d: NodeChanged) -> None:
        """Let nodes that were not listed try again: a trustee reads its roster as it starts."""
        if d.change is Change.JOINED and self.state.nodes[d.node].badge.role == TRUSTEE:
            self._unlisted.clear()

    def _noted(self, d: Noted) -> None:
        """Note a trustee that lost its task, or gave it back."""
        seats = self.list.seats if self.list is not None else ()
        if isinstance(d.note, notes.Released) and any(seat.node == d.node for seat in seats):
            declined = d.note.reason.startswith(notes.DECLINED)
            self._dropped[d.node] = d.note.reason if declined else ""

    def _judged(self, d: Judged) -> None:
        """Note a trustee whose answer was refused."""
        open_for = self.list.version if self.list is not None else 0
        if d.verdict == "refused" and d.claim.result in ANSWERS and d.claim.base + 1 == open_for:
            self._dropped[d.node] = d.reason or "its answer was refused"

    # Time

    def deadline(self) -> float:
        """Return when entries are chosen without waiting on, or the list is given up for want of trustees."""
        asked = self.list
        if asked is None or self.making or self.settings is None:
            return math.inf
        hurry = asked.vetting is not None and not asked.vetting.lacking
        return self.since + self.settings.patience * (VETTING_SHARE if hurry else 1.0)

    def expire(self) -> Steps:
        closing, asked = self.state.closing, self.list
        if closing is None or self.now < self.deadline():
            return
        if asked is not None and asked.vetting is not None and not asked.vetting.lacking:
            asked.due += asked.vetting.hurry()  # `look` carries it out
        else:
            yield self._given_up(closing, f"waited {self.now - self.since:.0f} s for {self.waiting_for}")

    def excuse(self, seconds: float) -> None:
        self.since += seconds

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {Noted: self._noted, Judged: self._judged, NodeChanged: self._node_changed}

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {Listed: self._listed}
