"""A ZMQ socket on an asyncio event loop, without a thread or a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import zmq

from barnraise.transport.base import Signal
from barnraise.wire.frames import Buffer


class LoopSocket:
    """Non-blocking sends and receives, and signals for when they may succeed again.

    libzmq's file descriptor is edge-triggered: it is readable once after something happened, and any call on the
    socket may swallow that. So nobody waits without having tried first, and `poll` follows each success. With
    `on_readable`, that is called instead of waking the readers; it has to receive until there is nothing left.
    """

    def __init__(self, socket: zmq.Socket[bytes], on_readable: Callable[[], None] | None = None) -> None:
        self.socket = socket
        self._on_readable = on_readable or self._wake_readers
        self.readable, self.writable = Signal(), Signal()
        self._loop = asyncio.get_running_loop()
        self._descriptor = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._descriptor, self.poll)
        self._loop.call_soon(self.poll)  # libzmq signals a pipe's first message only to who has found it empty

    @property
    def closed(self) -> bool:
        return self.socket.closed

    def poll(self) -> None:
        """Wake whoever waits for what the socket can do now."""
        if self.closed:
            return
        events = int(self.socket.getsockopt(zmq.EVENTS))
        if events & zmq.POLLOUT:
            self.writable.wake()
        if events & zmq.POLLIN:
            self._on_readable()

    def _wake_readers(self) -> None:
        self.readable.wake()

    def try_send(self, frames: Sequence[Buffer]) -> bool:
        """Send the message, or nothing of it when there is no room. Frames are copied, and may change afterwards."""
        try:
            self.socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            return False
        if self.readable or self.writable:
            self.poll()
        return True

    def try_receive(self, max_frames: int) -> list[zmq.Frame] | None:
        """The next message, at most its first `max_frames` frames; None when there is none."""
        try:
            frame = self.socket.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        frames = [frame]
        while frame.more:
            frame = self.socket.recv(copy=False)
            if len(frames) < max_frames:
                frames.append(frame)
        return frames

    def close(self, linger: float = 0.0) -> None:
        """Close the socket and wake everybody; what was sent has `linger` seconds to leave."""
        if not self.closed:
            self._loop.remove_reader(self._descriptor)
            self.socket.close(linger=round(linger * 1000))
        self.readable.wake()
        self.writable.wake()


def contents(frames: Sequence[zmq.Frame]) -> list[Buffer]:
    """The header as bytes of its own, the others as views that keep the received memory alive."""
    return [frames[0].bytes, *(frame.buffer for frame in frames[1:])] if frames else []
