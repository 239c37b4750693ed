"""Reception of machines: strangers that enrol, nodes that take new keys, and excluded ones."""

from __future__ import annotations

import time
from functools import partial

from barnraise.controller.fleet.membership import turned_away
from barnraise.controller.shell.duplicate_keys import PATIENCE, REASON, DuplicateKeys, KeyUse
from barnraise.controller.shell.enrolment import Entry, UnansweredError, refusal_of
from barnraise.controller.shell.independence import dependence
from barnraise.controller.shell.role_handlers import HandlerContext, RoleHandler
from barnraise.controller.state.events import Admitted, Rekeyed
from barnraise.core.errors import InviteError, StorageError
from barnraise.transport.base import Peer
from barnraise.trust import signatures
from barnraise.trust.roles import TRUSTEE
from barnraise.wire.messages import TAKEN, Enrol, Enrolled, Hello, Identify, Message, Stop


class Reception(RoleHandler):
    """Admits machines as nodes, answers them, and gives the state machine their events."""

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self.enrolment, self._machine, self._peers = context.enrolment, context.machine, context.peers
        self._post, self._address = context.post, context.address
        self._coming: set[str] = set()  # keys admitted by this process
        self._twins, self._told = DuplicateKeys(), set[str]()

    def turn_away(self, peer: Peer, node: str, message: Message) -> None:
        """Answer a revoked node that asks for admission; its other messages are ignored."""
        if isinstance(message, Enrol | Hello):
            self._transmit(peer, turned_away(self._machine.state.nodes[node]).message)

    def greet(self, peer: Peer, message: Enrol) -> None:
        """Enrol a key as a new node, or as the node that endorses it."""
        state = self._machine.state
        if peer.key in state.roster.keys:
            self._coming.discard(peer.key)
            self._transmit(peer, Enrolled(state.roster.keys[peer.key]))
        elif peer.key not in self._coming:
            try:
                event = self._let_in(peer, message)
            except UnansweredError:
                return
            except (InviteError, StorageError) as error:
                self._transmit(peer, refusal_of(error))
            else:
                self._coming.add(peer.key)
                self._peers[message.name] = peer
                self._post(event)

    def has_place(self, peer: Peer, node: str, message: Hello) -> bool:
        """Return whether the node's place is this peer's, or free; else it is told so, or waits to greet again."""
        known, other = self._machine.state.nodes[node], self._peers.get(node)
        if other is None or not known.live or not self._address(other):
            self._twins.forget(node)
            return True
        if other == peer or message.session == known.session.id:
            self._twins.heard(node)
            return True
        patience = max(PATIENCE, 2.0 * self._machine.heartbeat)
        place = self._twins.asked(node, time.monotonic(), patience)
        if place is KeyUse.WAIT:
            self._transmit(other, Identify())  # a live process greets again
        elif place is KeyUse.TAKEN:
            self._transmit(peer, Stop(REASON, final=False, refusal=TAKEN))
            self._tell_of_twins(node)
        return place is KeyUse.FREE

    def _transmit(self, peer: Peer, message: Message) -> None:
        self.context.transmit(peer, message, None)

    def _tell_of_twins(self, node: str) -> None:
        """Warn the host, once for each node."""
        if node not in self._told:
            self._told.add(node)
            self.enrolment.warn(
                f"a second process has the keys of node '{node}', and was told to take others; unless its home folder "
                "was copied, another person has these keys: ask the owner of the node to take new ones (barnraise "
                "join --new-keys)"
            )

    def _warn_of_dependence(self, name: str, entry: Entry, address: str) -> None:
        """Warn the host, once for each trustee, where it is not independent of the host or of another one."""
        masks, nodes = self._machine.settings.payloads.protection.masks, self._machine.state.nodes.values()
        if masks is None or entry.role != TRUSTEE:
            return
        if told := dependence(name, entry.owner, address, nodes, masks.colluding):
            self.enrolment.warn(told)

    def _let_in(self, peer: Peer, message: Enrol) -> Admitted | Rekeyed:
        """Return the event of a machine that may join.

        Raises InviteError when it may not.
        """
        node, address = self._machine.state.nodes.get(message.name), self._address(peer)
        if not message.endorsement:
            taken = node is not None or message.name in self._peers
            entry = self.enrolment.let_in(message, peer.key, taken=taken, address=address)
            self._warn_of_dependence(message.name, entry, address)
            return Admitted(message.name, peer.key, entry.invite, message.signer, entry.role, entry.owner)
        told = signatures.rotation(self._machine.settings.run, message.name, peer.key, message.signer)
        signer = node.badge.signer if node is not None and not node.revoked else ""
        vouched = partial(signatures.verified, told, message.endorsement, signer)
        self.enrolment.take_new_keys(message, peer.key, vouched=vouched, address=address)
        assert node is not None
        if node.works and self._machine.settings.payloads.protection.masks is not None:
            raise InviteError(
                f"trustees of this masked run know '{node.id}' by its first keys, and would refuse its updates under "
                "others; join under another name (barnraise join INVITE --name NAME)"
            )
        return Rekeyed(message.name, peer.key, message.signer)
