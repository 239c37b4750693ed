"""The threads of a worker's process beside its event loop."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from barnraise.core.threads import LATER, yield_to_others


class Pools:
    """One thread trains, one takes versions in, and one encodes updates; each does one thing at a time, in order.

    With a `device` other than the CPU the training thread gives it work and waits: the others yield to it.
    """

    def __init__(self, device: str) -> None:
        later = 0 if device == "cpu" else LATER
        self.training = ThreadPoolExecutor(1, "train", initializer=None if later else yield_to_others)
        self.updating = ThreadPoolExecutor(1, "update", initializer=yield_to_others, initargs=(later,))
        self.encoding = ThreadPoolExecutor(1, "encode", initializer=_encoder, initargs=(later,))

    def shutdown(self) -> None:
        """Drop all work that has not begun, and wait for none."""
        for pool in (self.training, self.updating, self.encoding):
            pool.shutdown(wait=False, cancel_futures=True)


def _encoder(niceness: int) -> None:
    """Prepare the thread that encodes: subnormal numbers count as on the training thread, so updates are the same."""
    import torch

    torch.set_flush_denormal(True)
    yield_to_others(niceness)
