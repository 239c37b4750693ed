"""The signature of a worker's payloads."""

from __future__ import annotations

from barnraise.core.types import AnyResult, PayloadResult
from barnraise.trust.signatures import RunId, signed
from barnraise.wire.messages import Welcome
from barnraise.worker.options import WorkerOptions


def vouched(result: AnyResult, welcome: Welcome | None, options: WorkerOptions) -> AnyResult:
    """Return `result` with this worker's signature, if it has a payload for the run that it was welcomed in."""
    if welcome is None or not isinstance(result, PayloadResult):
        return result
    return signed(RunId(welcome.run, options.server_key), welcome.node, result, options.keys.signer)
