"""The compatibility table: combinations that a run file must not have, with the reason and a remedy.

Each row is a function that finds its case and returns the values and the limit; the row adds the remedy. A row is an
error, or a warning where the run works but probably not as intended. The table is part of the documentation.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from barnraise.config.problems import Problem
from barnraise.config.schema import RunFile
from barnraise.models.architectures import is_dropout
from barnraise.plan import (
    aggregation_rows,
    compression_rows,
    encryption_rows,
    fault_rows,
    mask_rows,
    part_rows,
    privacy_rows,
    site_rows,
    stateless_rows,
    suggest,
)
from barnraise.plan.choices import mode
from barnraise.plan.dataset import mean_row
from barnraise.plan.problem import builds_own
from barnraise.plan.purpose import SERVE
from barnraise.plan.table import Case, Found, Row, Unresolved, adding_to, either, rule_name
from barnraise.training.catalog import CATALOG as OUTER
from barnraise.training.catalog import INNER

ROWS: list[Row] = []
_row = adding_to(ROWS)


def judge(case: Case) -> tuple[list[Problem], list[Problem]]:
    """Return (errors, warnings) of all rows."""
    errors: list[Problem] = []
    warnings: list[Problem] = []
    for row in ROWS:
        try:
            found = [Problem(path, f"{text}; {row.instead}") for path, text in row.find(case)]
        except Unresolved:
            continue
        (warnings if row.warning else errors).extend(found)
    return errors, warnings


@_row(
    "an outer optimizer in a mode that it does not suit",
    suggest.outer_reasons(),
    f"choose {suggest.outer_by_mode()}",
)
def _outer_mode(case: Case) -> Found:
    traits = OUTER.entry(case.outer.name).declares
    now = mode(case.controller)
    if now not in traits.modes:
        path = ("aggregation", "outer_optimizer")
        yield path, f"{case.outer.name} cannot be used in {now} mode: {traits.reason}"


@_row(
    "evaluation by workers of an average of versions",
    "a worker has the newest version, and no average of those before",
    "leave evaluation.by `controller`, or evaluation.average 0",
)
def _averaged_elsewhere(case: Case) -> Found:
    if case.evaluation.by == "workers" and case.evaluation.average:
        path = ("evaluation", "by")
        yield (
            path,
            f"is workers, but with evaluation.average {case.evaluation.average:g} an average is what is evaluated",
        )


@_row(
    "a run that strangers join, whose loss workers measure",
    "nodes of two owners measure each row where two are there, and the controller where these differ: one owner alone, "
    "or two that lie together, decide the loss, from 0 to three times that of a guess",
    "leave evaluation.by `controller`, unless you trust all workers, or strangers from several networks come",
    warning=True,
)
def _measured_by_strangers(case: Case) -> Found:
    encrypted = case.run_file.privacy.homomorphic_encryption is not None  # all workers have its key
    if case.purpose is SERVE and case.evaluation.by == "workers" and not encrypted:
        yield ("evaluation", "by"), "is workers, and the loss is what two owners, or one alone, say it is"


@_row(
    "scores where workers measure the held-out loss",
    "the controller scores with the model, and loads it for nothing else",
    "leave evaluation.by `controller`, or trust.scores 0",
    warning=True,
)
def _scored_without_model(case: Case) -> Found:
    scores = case.trust.scores
    if scores and case.evaluation.by == "workers":
        yield ("trust", "scores"), f"is {scores:g}, but evaluation.by is workers"


@_row(
    "a loss gate where workers measure the held-out loss",
    "the gate measures losses with the model, and the controller loads it for nothing else",
    "leave evaluation.by `controller`, or trust.loss_gate 0",
    warning=True,
)
def _gated_without_model(case: Case) -> Found:
    if case.trust.loss_gate and case.evaluation.by == "workers":
        yield ("trust", "loss_gate"), f"is {case.trust.loss_gate}, but evaluation.by is workers"


@_row(
    "a loss gate before a rule that keeps vectors",
    "the gate asks the rule what it would make of several sets of updates, and such a rule remembers what it is asked",
    "leave trust.loss_gate 0, or choose a rule without memory",
)
def _gated_memory(case: Case) -> Found:
    rule = case.choices.aggregation
    if case.trust.loss_gate and rule is not None and rule.keeps:
        yield ("trust", "loss_gate"), f"is {case.trust.loss_gate}, but {'+'.join(rule.names)} keeps vectors"


@_row(
    "audits in rounds that wait for all",
    "a node that repeats another's work is not in that round's version, and a round of few nodes counts like any other",
    "leave controller.use_async_training true, or trust.audits 0",
    warning=True,
)
def _audits_in_rounds(case: Case) -> Found:
    audits = case.trust.audits
    if audits and not case.controller.use_async_training:
        yield ("trust", "audits"), f"is {audits:g}: in the mean a round lacks so many of its nodes"


@_row(
    "adaptive staleness with staleness.min above staleness.max",
    "the bound of a node of median speed would be both",
    "lower staleness.min or raise staleness.max",
)
def _staleness_order(case: Case) -> Found:
    staleness = case.staleness
    adaptive = case.controller.use_async_training and staleness.adaptive
    if adaptive and staleness.min > staleness.max:
        text = f"is {staleness.min}, above staleness.max, which is {staleness.max}"
        yield ("staleness", "min"), text


@_row(
    "http_port that is controller.port, or with use_zmq: false",
    "each transport has a port of its own, and without ZMQ there is one transport, on controller.port",
    "choose another http_port, or leave it out",
)
def _ports(case: Case) -> Found:
    controller = case.controller
    if controller.http_port is not None and not controller.use_zmq:
        yield (
            ("controller", "http_port"),
            f"is {controller.http_port}, but with use_zmq: false HTTP has controller.port",
        )
    elif controller.http_port and controller.http_port == controller.port:
        yield ("controller", "http_port"), f"is {controller.http_port}, which is controller.port too"


@_row(
    "a token budget smaller than one task",
    "not even the first task could be assigned in full",
    "raise tokens, or lower local_steps, batch_size or the data's context",
)
def _small_budget(case: Case) -> Found:
    task = task_tokens(case.run_file)
    if case.training.tokens < task:
        yield ("training", "tokens"), f"is {case.training.tokens}, but one task takes {task} (rows x steps x context)"


@_row(
    "a warm-up that is not over when the run is",
    "the learning rate would never reach its peak",
    "lower warmup_tokens or raise tokens",
)
def _long_warmup(case: Case) -> Found:
    warmup, tokens = case.training.warmup_tokens, case.training.tokens
    if warmup >= tokens:
        yield ("training", "warmup_tokens"), f"is {warmup}, but the run has {tokens} tokens"


@_row(
    "a lease that does not outlast two heartbeats",
    "one late heartbeat would count as a death",
    "raise lease or lower heartbeat",
)
def _short_lease(case: Case) -> Found:
    controller = case.controller
    if controller.lease < 2 * controller.heartbeat:
        yield ("controller", "lease"), f"is {controller.lease} s, but heartbeats are {controller.heartbeat} s apart"


@_row(
    "a model section with both architecture and path, or neither",
    "a model is built from a config or loaded from a folder",
    "give one of them: `architecture: NAME` with a config, or `path: FOLDER`",
)
def _model_source(case: Case) -> Found:
    model = case.run_file.model
    if builds_own(case.run_file):
        return
    if (model.architecture is None) == (model.path is None):
        yield ("model",), "has both architecture and path" if model.path else "has neither architecture nor path"


@_row(
    "a model section with path and a config that sets more than dropout",
    "a checkpoint folder brings its own config",
    "leave them out",
)
def _model_config(case: Case) -> Found:
    model = case.run_file.model
    others = [key for key in model.config if not is_dropout(key)]
    if model.path is not None and model.architecture is None and others:
        yield ("model", "config"), f"sets {', '.join(others)} beside path = {model.path}"


@_row(
    "no local workers for `train`",
    "no worker would do the work",
    "list some, as in `workers: [{name: a}, {name: b}]`, or use `barnraise serve` and `join`",
)
def _no_workers(case: Case) -> Found:
    if case.purpose.local and not case.run_file.workers:
        yield ("workers",), "is empty"


@_row(
    "two local workers of one name",
    "a name is a worker's identity in the run",
    "give each its own",
)
def _same_names(case: Case) -> Found:
    first: dict[str, int] = {}
    for index, worker in enumerate(case.run_file.workers):
        if worker.name in first:
            yield ("workers", index, "name"), f"'{worker.name}' is the name of workers[{first[worker.name]}] too"
        first.setdefault(worker.name, index)


@_row(
    "an option of an algorithm that is not chosen",
    "it has no effect",
    "leave it out, or choose the algorithm it belongs to",
    warning=True,
)
def _unused(case: Case) -> Found:
    training, exchange, aggregation = case.training, case.exchange, case.aggregation
    if exchange.compression_ratio is not None and "ratio" not in case.compression.options:
        yield (
            ("exchange", "compression_ratio"),
            f"counts only with codecs that keep a share, but exchange.compression is {case.compression.name}",
        )
    if aggregation.trim_ratio is not None and "trim_ratio" not in _rule_options(case):
        yield (
            ("aggregation", "trim_ratio"),
            f"counts only with {either(suggest.rules_with('trim_ratio'))}, but the rule is {rule_name(case)}",
        )
    if aggregation.outer_momentum is not None and "momentum" not in case.outer.options:
        yield ("aggregation", "outer_momentum"), f"{case.outer.name} has no momentum"
    if training.momentum and "momentum" not in case.inner.options:
        takers = either(name for name, entry in INNER.entries.items() if "momentum" in entry.known_options)
        yield ("training", "momentum"), f"counts only with {takers}, but inner_optimizer is {case.inner.name}"
    devices = {worker.device for worker in case.run_file.workers}
    if training.offload_optimizer and case.purpose.local and devices == {"cpu"}:
        yield ("training", "offload_optimizer"), "counts only for accelerators, but all workers have the device cpu"
    if case.aggregation.buffer_size != "auto" and not case.controller.use_async_training:
        yield ("aggregation", "buffer_size"), "counts only in asynchronous mode; a round waits for all live nodes"


@_row(
    "the momentum of the fleet with an inner optimizer that it does not help",
    "orthogonalised steps tell little of the gradients behind them: the loss was higher in each trial",
    "leave training.version_momentum 0",
    warning=True,
)
def _followed(case: Case) -> Found:
    if case.training.version_momentum and not INNER.entry(case.inner.name).declares.follows:
        text = f"is {case.training.version_momentum:g} with inner_optimizer {case.inner.name}, which it does not help"
        yield ("training", "version_momentum"), text


@_row(
    "an offloaded optimizer whose steps need the device",
    suggest.on_device_reasons(),
    f"choose {suggest.offloadable_inners()}, or leave training.offload_optimizer out",
)
def _offloaded(case: Case) -> Found:
    if case.training.offload_optimizer and (why := INNER.entry(case.inner.name).declares.on_device):
        yield ("training", "offload_optimizer"), f"is true, but inner_optimizer is {case.inner.name}: {why}"


@_row(
    "a buffer_size above the number of local workers",
    "the buffer could never fill, so it is lowered to the nodes that live",
    "list more workers, or leave it `auto`",
    warning=True,
)
def _large_buffer(case: Case) -> Found:
    size = case.aggregation.buffer_size
    if size != "auto" and case.num_nodes is not None and size > case.num_nodes > 0:
        yield ("aggregation", "buffer_size"), f"is {size}, but the run has {case.num_nodes} nodes"


@_row(
    "`serve` on the loopback address",
    "workers on other machines cannot dial it",
    "set host to an address of this machine that they can reach, or 0.0.0.0",
    warning=True,
)
def _loopback(case: Case) -> Found:
    host = case.controller.host
    if case.purpose is SERVE and (host == "localhost" or host.startswith("127.") or host == "::1"):
        yield ("controller", "host"), f"is {host}, which only this machine can dial"


@_row(
    "`durability: standby` with local workers",
    "a run that ends with this machine has no standby, and acknowledgements would wait for one forever",
    "set durability to local, or use `barnraise serve`",
)
def _durable_alone(case: Case) -> Found:
    if case.purpose.local and case.controller.durability == "standby":
        yield ("controller", "durability"), "is standby, but only a run that `serve` began can be followed"


def task_tokens(run_file: RunFile) -> int:
    """Return the token positions in a usual task: one with rows of mean length."""
    training = run_file.training
    return training.local_steps * training.step_rows * mean_row(run_file)


def _rule_options(case: Case) -> AbstractSet[str]:
    return case.rule.known_options


ROWS += [*aggregation_rows.ROWS, *fault_rows.ROWS, *compression_rows.ROWS, *stateless_rows.ROWS, *part_rows.ROWS]
ROWS += privacy_rows.ROWS
ROWS += mask_rows.ROWS
ROWS += site_rows.ROWS
ROWS += encryption_rows.ROWS
