"""Estimates of a run's memory before anything is allocated.

Torch-free for the architectures of `ARCHITECTURES`. Parameters and buffers (masks, tables of positions) are counted
exactly. Activations follow Korthikanti et al. 2022 (Reducing Activation Recomputation in Large Transformer Models,
equation 2: a layer keeps s b h (34 + 5 a s / h) bytes at two bytes a number), at four bytes a number and without the
dropout masks, plus the inputs that a GELU, a gate or an RMSNorm written out keeps, plus the logits. Not covered:
allocator overhead, fragmentation, mixed precision; attention kernels that keep no scores need less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from barnraise.core.errors import ModelError
from barnraise.core.units import bytes_text
from barnraise.models.config import architecture_of
from barnraise.models.exchange.base_model import AT_ONCE, BASE_TYPES, FLOAT32
from barnraise.models.exchange.catalog import CATALOG
from barnraise.models.exchange.record import Exchange
from barnraise.models.linears import linears

FLOAT = 4
HOST_VECTORS = 7  # vectors of a worker that are as long as what travels: see `worker`
PROCESS_BYTES = 450 << 20  # Python with torch and transformers loaded
GATED_ROWS = 4  # rows that pass through the controller's model at a time when it needs their gradient
FORKED_BYTES = 96 << 20  # a process that was forked from such a process, and shares its modules
_GATED_COPIES = 12, 4  # a norm written out keeps two more; a gate keeps its input and output, its factor, the product
_WRITTEN_OUT = ("gelu_new", "gelu_fast", "gelu_accurate", "quick_gelu")  # several operations, each keeps its input


@dataclass(frozen=True)
class Memory:
    """Bytes that one process needs: for the parameters and their like, for a batch, for the program itself."""

    vectors: int
    activations: int
    process: int = PROCESS_BYTES

    @property
    def allocated(self) -> int:
        """Return the bytes that are allocated beside the program itself."""
        return self.vectors + self.activations

    @property
    def total(self) -> int:
        return self.vectors + self.activations + self.process


def rows_alone(
    resolved: Mapping[str, Any],
    exchange: Exchange,
    lengths: Iterable[int],
    *,
    inner_states: float,
    recompute: bool = False,
) -> dict[int, int]:
    """Return the bytes that a worker needs to train with one row at a time, by the row's length."""
    more: dict[str, Any] = {"inner_states": inner_states, "recompute": recompute}
    return {
        length: worker(resolved, exchange, batch_size=1, context=length, **more).allocated
        for length in sorted(set(lengths))
    }


def too_long(needs: Mapping[int, int], rooms: Mapping[str, int]) -> tuple[str, list[int]]:
    """Return the node with the most memory, and the lengths of rows that are too long even for it.

    `needs` are the bytes of rows by their length (`rows_alone`), `rooms` the nodes' memory by name.
    """
    nearest = max(rooms, key=rooms.__getitem__)
    return nearest, sorted(length for length, needed in needs.items() if rooms[nearest] < needed)


def require_room(needs: Mapping[int, int], rooms: Mapping[str, int]) -> None:
    """Raise ModelError when no node has the memory for some rows: a run would wait for them forever."""
    nearest, lengths = too_long(needs, rooms)
    if lengths:
        needed, has = bytes_text(needs[lengths[-1]]), bytes_text(rooms[nearest])
        raise ModelError(
            f"training on rows of {lengths[-1]} tokens needs {needed} of memory, but {nearest}, the largest machine, "
            f"has {has}; take a smaller model or data.context, or add a machine"
        )


def model_size(resolved: Mapping[str, Any]) -> int:
    """Return the exact number of the model's parameters, tied ones counted once."""
    return sum(math.prod(shape) for _, shape in architecture_of(resolved).shapes(resolved))


def model_bytes(resolved: Mapping[str, Any], exchange: Exchange) -> int:
    """Return the bytes of the parameters of a module that is prepared for the exchange.

    The trained ones are float32; the others have the type of the exchange's base.
    """
    base = BASE_TYPES[str(exchange.name.options.get("base", FLOAT32))]
    beside = 0 if CATALOG.entry(exchange.name.kind).declares.inside else FLOAT * exchange.trained
    if not base.linear:
        return beside + FLOAT * model_size(resolved)
    layers = {f"{layer.name}.weight": layer for layer in linears(resolved)}
    for name, shape in architecture_of(resolved).shapes(resolved):
        if layer := layers.get(name):
            beside += layer.outputs * base.row_bytes(layer.inputs)
        else:
            beside += math.prod(shape) * (base.other if len(shape) == 2 else FLOAT)
    return beside


def widening_bytes(resolved: Mapping[str, Any], exchange: Exchange) -> int:
    """Return the bytes that an accelerator takes for a while to widen the largest matrix of the base."""
    base = BASE_TYPES[str(exchange.name.options.get("base", FLOAT32))]
    if not base.widening:
        return 0
    return base.widening * min(AT_ONCE, max(layer.outputs * layer.inputs for layer in linears(resolved)))


def buffer_bytes(resolved: Mapping[str, Any]) -> int:
    """Return the bytes of the model's buffers."""
    return architecture_of(resolved).buffer_bytes(resolved)


def worker(
    resolved: Mapping[str, Any],
    exchange: Exchange,
    *,
    batch_size: int,
    context: int,
    inner_states: float = 2,
    recompute: bool = False,
) -> Memory:
    """Estimate the memory of a worker, which may keep the inputs of layers alone and `recompute` activations.

    It holds the model's parameters and buffers. For each trained parameter there are a gradient and `inner_states`
    values of the optimizer. As long as what travels are replica, residual, start and end of the task whose update is
    encoded, one more that is copied or prepared while the next task trains, the last movement of versions, and an
    arriving snapshot.
    """
    values = (1 + inner_states) * exchange.trained + HOST_VECTORS * exchange.exchanged
    return Memory(
        model_bytes(resolved, exchange) + math.ceil(FLOAT * values) + buffer_bytes(resolved),
        (recomputed_bytes if recompute else activation_bytes)(resolved, batch_size=batch_size, context=context),
    )


def beside_device(exchange: Exchange, *, inner_states: float = 2, offload: bool = False) -> int:
    """Return the bytes of a worker's vectors in main memory, where the model is on an accelerator.

    With `offload` master weights, a gradient and the optimizer's state are here, too.
    """
    own = (2 + inner_states) * exchange.trained if offload else 0
    return math.ceil(FLOAT * (own + HOST_VECTORS * exchange.exchanged))


def on_device(
    resolved: Mapping[str, Any],
    exchange: Exchange,
    *,
    context: int,
    inner_states: float = 2,
    scratch: int = 0,
    recompute: bool = False,
) -> int:
    """Return the bytes that a worker needs on an accelerator, with one row at a time; `inner_states` 0: offloaded.

    `scratch` are the bytes that a step of the optimizer takes for a while, when no activations are there.
    """
    values = (1 + inner_states) * exchange.trained
    activations = (recomputed_bytes if recompute else activation_bytes)(resolved, batch_size=1, context=context)
    held = model_bytes(resolved, exchange) + math.ceil(FLOAT * values) + buffer_bytes(resolved)
    return held + max(activations + widening_bytes(resolved, exchange), scratch)


def measuring(resolved: Mapping[str, Any], exchange: Exchange, *, context: int, inner_states: float = 2) -> Memory:
    """Estimate the memory of a worker that measures the loss of one row.

    Nothing is kept for a backward pass, so one layer's activations count.
    """
    vectors = worker(resolved, exchange, batch_size=1, context=context, inner_states=inner_states).vectors
    return Memory(vectors, _forward_bytes(resolved, batch_size=1, context=context))


def controller(
    resolved: Mapping[str, Any],
    exchange: Exchange,
    *,
    payload_bytes: int,
    batch_size: int,
    context: int,
    outer_states: int = 1,
    gated: bool = False,
    measured: bool = False,
) -> Memory:
    """Estimate the memory of the controller.

    It holds the published parameters, the downlink's residual, `outer_states` vectors of the outer optimizer and the
    aggregation rule, the model that is evaluated, and `payload_bytes` of payloads. Checkpoints, and snapshots that
    nodes fetch, take none. `batch_size` rows are evaluated at once; no gradients are kept, so one layer's activations
    count. The loss gate (`gated`) takes the gradient of GATED_ROWS rows at a time. The run's metrics (`measured`) have
    a model of their own.
    """
    values = (2 + outer_states) * exchange.exchanged + gated * exchange.trained
    held = model_bytes(resolved, exchange) + FLOAT * values + buffer_bytes(resolved)
    workspace = _forward_bytes(resolved, batch_size=batch_size, context=context)
    if gated:
        workspace = max(workspace, activation_bytes(resolved, batch_size=GATED_ROWS, context=context))
    if measured:
        held += model_bytes(resolved, exchange)
        workspace += _forward_bytes(resolved, batch_size=batch_size, context=context)
    return Memory(held + payload_bytes, workspace)


def activation_bytes(resolved: Mapping[str, Any], *, batch_size: int, context: int) -> int:
    """Return the bytes that a forward pass of `batch_size` rows of `context` tokens keeps, logits included."""
    entry = architecture_of(resolved)
    if entry.activation_bytes is not None and (kept := entry.activation_bytes(resolved)):
        return kept * batch_size
    hidden, layers, heads = (entry.get(resolved, name) for name in ("hidden_size", "num_layers", "num_heads"))
    layers = layers or 1
    hidden = hidden or math.isqrt(model_size(resolved) // (12 * layers)) + 1
    inner = entry.get(resolved, "intermediate_size") or 4 * hidden
    tokens = batch_size * context
    hidden_copies, inner_copies = 8, 5 if resolved.get("activation_function") in _WRITTEN_OUT else 2
    if any(layer.name.endswith(".gate_proj") for layer in linears(resolved)):
        hidden_copies, inner_copies = _GATED_COPIES
    per_token = FLOAT * (hidden_copies * hidden + inner_copies * inner + 2 * (heads or 1) * context)
    return int(tokens * per_token * layers + _logit_bytes(resolved, tokens))


def recomputed_bytes(resolved: Mapping[str, Any], *, batch_size: int, context: int) -> int:
    """Return the same where only the inputs of layers are kept, and one layer's activations are computed again."""
    entry = architecture_of(resolved)
    hidden, layers = (entry.get(resolved, name) or 1 for name in ("hidden_size", "num_layers"))
    inputs = FLOAT * batch_size * context * hidden * layers
    return int(inputs + _forward_bytes(resolved, batch_size=batch_size, context=context))


def _forward_bytes(resolved: Mapping[str, Any], *, batch_size: int, context: int) -> int:
    """Return the bytes of a forward pass that keeps nothing: one layer's activations, and the logits."""
    layers = architecture_of(resolved).get(resolved, "num_layers") or 1
    logits = _logit_bytes(resolved, batch_size * context)
    return (activation_bytes(resolved, batch_size=batch_size, context=context) - logits) // layers + logits


def _logit_bytes(resolved: Mapping[str, Any], tokens: int) -> int:
    vocabulary = architecture_of(resolved).get(resolved, "vocab_size") or 1
    return int(3 * FLOAT * tokens * vocabulary)  # logits, their log-softmax, its gradient


def available_bytes() -> int:
    """Return the memory that this process can still get: the machine's or its control group's, the smaller one."""
    free = int(psutil.virtual_memory().available)
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return free
    return free if limit == "max" else min(free, max(0, int(limit) - int(used)))


REMEDY = "take a smaller model, batch_size or context, fewer local workers, or a larger machine"


def require(needed: int, available: int, who: str, instead: str = REMEDY) -> None:
    """Raise ModelError when `who` ("4 local workers and the controller") needs more bytes than are available.

    `instead` is the remedy.
    """
    if needed > available:
        raise ModelError(
            f"{who} need about {bytes_text(needed)} of memory, but {bytes_text(available)} are available; {instead}"
        )
