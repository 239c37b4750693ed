"""A ZMQ socket on an asyncio event loop, without a thread or a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import zmq

from barnraise.transport.waking import Signal
from barnraise.wire.frames import Buffer

FRAMES_A_CALL = 4096
"""Frames of one message that are read at a time, so that none holds up the event loop."""

_IN, _OUT = int(zmq.POLLIN), int(zmq.POLLOUT)  # flags of an enum are slow


class LoopSocket:
    """Non-blocking sends and receives, and waiting until they may succeed again.

    libzmq's file descriptor is edge-triggered: it is readable once after an event, and any call on the socket, a failed
    one too, may consume that for waiting callers. So each call is followed by a check of the socket's state when a
    caller waits, and no caller begins to wait without one. `on_readable`, if given, is called when there is something
    to receive; it has to receive until there is nothing left.
    """

    def __init__(self, socket: zmq.Socket[bytes], on_readable: Callable[[], None] | None = None) -> None:
        self.socket = socket
        self._on_readable = on_readable or self._wake_readers
        self._readable, self._writable = Signal(), Signal()
        self._loop = asyncio.get_running_loop()
        self._in_midst = False  # within a message of more than FRAMES_A_CALL frames
        self._descriptor = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._descriptor, self._look)
        self._loop.call_soon(
            self._look
        )  # libzmq signals a pipe's first message only to a caller that has found it empty

    @property
    def closed(self) -> bool:
        return self.socket.closed

    async def wait_readable(self) -> None:
        """Wait until there is, or may be, something to receive, or the socket is closed."""
        if not self._look() & _IN:
            await self._readable.wait()

    async def wait_writable(self) -> None:
        """Wait until there is, or may be, room to send, or the socket is closed."""
        if not self._look() & _OUT:
            await self._writable.wait()

    def _look(self) -> int:
        """Wake the callers that wait for an operation that is possible now."""
        if self.closed:
            return _IN | _OUT
        events = int(self.socket.getsockopt(zmq.EVENTS))
        if events & _OUT:
            self._writable.wake()
        if events & _IN:
            self._on_readable()
        return events

    def _wake_readers(self) -> None:
        self._readable.wake()

    def _called(self) -> None:
        if self._readable or self._writable:
            self._look()

    def try_send(self, frames: Sequence[Buffer]) -> bool:
        """Send the message, or nothing of it when there is no room.

        Frames are copied, and may change afterwards.
        """
        try:
            self.socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            return False
        finally:
            self._called()
        return True

    def try_send_counted(self, frames: Sequence[bytes]) -> zmq.MessageTracker | None:
        """Send without a copy, and return a tracker of libzmq's use of the last frame's memory.

        None: there is no room.
        """
        try:
            return self.socket.send_multipart(frames, zmq.NOBLOCK, copy=False, track=True)
        except zmq.Again:
            return None
        finally:
            self._called()

    def try_receive(self, max_frames: int) -> list[zmq.Frame] | None:
        """Return the next message, at most its first `max_frames` frames; None when there is none.

        Each call reads some frames of a message of thousands, and calls in its midst return no frame at all.
        """
        frames: list[zmq.Frame] = []
        try:
            for _ in range(FRAMES_A_CALL):
                frame = self.socket.recv(zmq.NOBLOCK, copy=False)
                if len(frames) < max_frames and not self._in_midst:
                    frames.append(frame)
                if not frame.more:
                    self._in_midst = False
                    break
            else:
                self._in_midst = True
        except zmq.Again:
            return None
        finally:
            self._called()
        return frames

    def close(self, linger: float = 0.0) -> None:
        """Close the socket and wake all callers; sent messages have `linger` seconds to leave."""
        if not self.closed:
            self._loop.remove_reader(self._descriptor)
            self.socket.close(linger=round(linger * 1000))
        self._readable.wake()
        self._writable.wake()


def contents(frames: Sequence[zmq.Frame]) -> list[Buffer]:
    """Return the header as bytes of its own, the others as views that keep the received memory alive."""
    return [frames[0].bytes, *(frame.buffer for frame in frames[1:])] if frames else []
