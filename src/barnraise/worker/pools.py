"""The threads of a worker's process beside its event loop."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from barnraise.core.threads import yield_to_others


class Pools:
    """One thread trains, one takes versions in, and one encodes updates; each does one thing at a time, in order.

    With a `device` other than the CPU the training thread gives it work and waits: the others yield to it.
    """

    def __init__(self, device: str) -> None:
        self.training = ThreadPoolExecutor(1, "train", initializer=yield_to_others if device == "cpu" else None)
        self.updating = ThreadPoolExecutor(1, "update", initializer=yield_to_others)
        self.encoding = ThreadPoolExecutor(1, "encode", initializer=_encoder)

    def shutdown(self) -> None:
        """Drop all work that has not begun, and wait for none."""
        for pool in (self.training, self.updating, self.encoding):
            pool.shutdown(wait=False, cancel_futures=True)


def _encoder() -> None:
    """Prepare the thread that encodes: subnormal numbers count as on the training thread, so updates are the same."""
    import torch

    torch.set_flush_denormal(True)
    yield_to_others()
