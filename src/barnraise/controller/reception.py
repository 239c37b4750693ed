"""Who comes to the door: strangers that would be nodes, nodes that take new keys, and those that were put out."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from functools import partial

from barnraise.controller.enrolment import Enrolment, UnansweredError, refusal_of
from barnraise.controller.events import Admitted, Event, Rekeyed
from barnraise.controller.machine import Controller
from barnraise.controller.membership import turned_away
from barnraise.core.errors import InviteError, StorageError
from barnraise.transport.base import Peer
from barnraise.trust import signatures
from barnraise.wire.messages import Enrol, Enrolled, Hello, Message


class Reception:
    """Answers through `transmit`, and hands the machine what follows with `post`. `peers` are nodes' connections, and
    `address` tells where one comes from."""

    def __init__(
        self,
        enrolment: Enrolment,
        machine: Controller,
        peers: MutableMapping[str, Peer],
        transmit: Callable[[Peer, Message], object],
        post: Callable[[Event], None],
        address: Callable[[Peer], str],
    ) -> None:
        self.enrolment, self._machine, self._peers = enrolment, machine, peers
        self._transmit, self._post, self._address = transmit, post, address
        self._coming: set[str] = set()  # keys let in by this process

    def turn_away(self, peer: Peer, node: str, message: Message) -> None:
        """A revoked node is answered when it asks to be let in; whatever else it says is not read."""
        if isinstance(message, Enrol | Hello):
            self._transmit(peer, turned_away(self._machine.state.nodes[node]).message)

    def enrol(self, peer: Peer, message: Enrol) -> None:
        """Let a key in as a new node, or as the node that vouches for it."""
        state = self._machine.state
        if peer.key in state.keys:
            self._coming.discard(peer.key)
            self._transmit(peer, Enrolled(state.keys[peer.key]))
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

    def _let_in(self, peer: Peer, message: Enrol) -> Admitted | Rekeyed:
        """What follows for a machine that may come in. Raises InviteError when it may not."""
        node, address = self._machine.state.nodes.get(message.name), self._address(peer)
        if not message.endorsement:
            taken = node is not None or message.name in self._peers
            entry = self.enrolment.let_in(message, peer.key, taken=taken, address=address)
            return Admitted(message.name, peer.key, entry.invite, message.signer, entry.role, entry.owner)
        told = signatures.rotation(self._machine.settings.run, message.name, peer.key, message.signer)
        signer = node.badge.signer if node is not None and not node.revoked else ""
        vouched = partial(signatures.verified, told, message.endorsement, signer)
        self.enrolment.take_new_keys(message, peer.key, vouched=vouched, address=address)
        assert node is not None
        return Rekeyed(message.name, peer.key, message.signer)
