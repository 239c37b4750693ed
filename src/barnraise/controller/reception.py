"""Who comes to the door: strangers that would be nodes, nodes that take new keys, and those that were put out."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping

from barnraise.controller.enrolment import Enrolment
from barnraise.controller.events import Admitted, Event, Rekeyed
from barnraise.controller.machine import Controller
from barnraise.controller.membership import turned_away
from barnraise.core.errors import StorageError
from barnraise.transport.base import Peer
from barnraise.trust import signatures
from barnraise.wire.messages import Enrol, Enrolled, Hello, Message, Stop


class Reception:
    """Answers through `transmit`, and hands the machine what follows with `post`. `peers` are nodes' connections."""

    def __init__(
        self,
        enrolment: Enrolment,
        machine: Controller,
        peers: MutableMapping[str, Peer],
        transmit: Callable[[Peer, Message], object],
        post: Callable[[Event], None],
    ) -> None:
        self.enrolment, self._machine, self._peers = enrolment, machine, peers
        self._transmit, self._post = transmit, post
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
                refusal = self._refuse(peer, message)
            except StorageError as error:  # nobody is let in whose invite cannot be spent
                refusal = Stop(f"nobody can join now, try again later: {error}")
            if refusal is not None:
                self._transmit(peer, refusal)
                return
            self._coming.add(peer.key)
            self._peers[message.name] = peer
            if message.name in state.nodes:
                self._post(Rekeyed(message.name, peer.key, message.signer))
            else:
                self._post(Admitted(message.name, peer.key, message.token, message.signer))

    def _refuse(self, peer: Peer, message: Enrol) -> Stop | None:
        node = self._machine.state.nodes.get(message.name)
        if not message.endorsement:
            taken = node is not None or message.name in self._peers
            return self.enrolment.refuse(message, peer.key, taken=taken)
        told = signatures.rotation(self._machine.settings.run, message.name, peer.key, message.signer)
        vouched = node is not None and not node.revoked and signatures.verified(told, message.endorsement, node.signer)
        return self.enrolment.refuse_new_keys(message, vouched=vouched)
