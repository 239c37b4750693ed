"""The signature of a worker's payloads."""

from __future__ import annotations

from barnraise.core.types import AnyResult, PayloadResult
from barnraise.trust.signatures import RunId, signed
from barnraise.wire.messages import Welcome
from barnraise.worker.options import WorkerOptions
from barnraise.worker.releases import reserved


def vouched(result: AnyResult, welcome: Welcome | None, options: WorkerOptions) -> AnyResult:
    """Return `result` as it is released, with a signature if it has a payload for the run that welcomed this worker."""
    result = reserved(result, welcome, options)
    if welcome is None or not isinstance(result, PayloadResult):
        return result
    return signed(RunId(welcome.run, options.server_key), welcome.node, result, options.keys.signer)
