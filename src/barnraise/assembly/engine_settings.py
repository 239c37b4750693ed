"""From a plan to the settings of the controller's state machine and its workers, for every command."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from barnraise import matching, staleness
from barnraise.compression.catalog import CATALOG as CODECS
from barnraise.config.privacy_sections import EXAMPLE
from barnraise.config.site_sections import SiteData
from barnraise.controller.state.settings import (
    AuditSettings,
    EngineSettings,
    EvaluationSettings,
    GateSettings,
    MaskSettings,
    PatienceSettings,
    PayloadSettings,
    PrivacySettings,
    ProtectionSettings,
    RowNeeds,
    ScoreSettings,
    SiteSettings,
    TaskSettings,
    VersionSettings,
)
from barnraise.core.ranges import split
from barnraise.core.sites import Releases, SiteTerms
from barnraise.core.types import Blob
from barnraise.data.ranges import RowIndex
from barnraise.ledger.privacy_notes import PrivacyBudget
from barnraise.models import memory
from barnraise.models.exchange.record import MOST_MOVED, Exchange
from barnraise.plan import Plan, payload_bytes
from barnraise.plan.dataset import longest_row, mean_row, row_lengths
from barnraise.plan.estimate import payload_growth
from barnraise.plan.leases import leases
from barnraise.plan.masking import LEAST_GROUP
from barnraise.plan.metrics import wanted_of
from barnraise.training.catalog import CATALOG as OUTER
from barnraise.training.catalog import INNER
from barnraise.training.reach import HELD_BACK, Reach
from barnraise.trust.repeats import PERTURBATION, TOLERANCE
from barnraise.trust.signatures import RunId
from barnraise.wire.messages import Downlink, Inner, Masks, Uplink, WorkerSettings
from barnraise.wire.private import Encrypted, Private

UPLOAD_MEMORY = 1 << 29
"""Bytes of payloads on their way or inspected at a time, unless two of the largest are more."""

MOST_AGE = 64
"""Staleness in versions from which on a masked or encrypted update weighs the same."""

LOSS_FACTOR = 3.0
"""Factor of the loss of a uniform guess up to which a worker's claim is accepted."""


def engine_settings(
    plan: Plan,
    *,
    run: RunId,
    manifest: Blob,
    model: Mapping[str, Any],
    exchange: Exchange,
    rows: RowIndex,
    held_out: int,
    token_bytes: int,
    secret: bytes = b"",
    form: str = "",
) -> EngineSettings:
    """Return the settings of a run of `plan`, for `train`, `serve`, `resume` and `simulate` alike.

    `manifest` is the blob that workers fetch first (`wire.manifest`), `model` its config, `exchange` the layout of
    what travels, `rows` the training rows of the dataset's shards, `held_out` how many are held out,
    `token_bytes` the bytes of a token in them. `secret` is known to no worker, and chooses whose work is repeated or
    scored; a simulation needs none. `form` is the digest of the form of rows that stay with their nodes. Imports no
    torch.
    """
    controller, training = plan.run_file.controller, plan.run_file.training
    evaluation, trust = plan.run_file.evaluation, plan.run_file.trust
    exchanged, data = exchange.exchanged, plan.run_file.data
    partitions = tuple(split(exchanged, count) for count in plan.fragments)
    largest = max(fragment.stop - fragment.start for fragment in partitions[0])
    largest_payload = max(
        payload_bytes(choice, exchanged) for choice in (*plan.contributions, plan.last_compression) if choice
    )
    moments = INNER.entry(plan.inner.name).declares.moments(exchange.layout)
    lengths, recompute = rows.lengths or row_lengths(plan.run_file), training.checkpoint_activations
    alone = memory.rows_alone(model, exchange, lengths, inner_states=moments, recompute=recompute)
    sites = SiteSettings(form, data.sites_per_version) if isinstance(data, SiteData) else None
    even = plan.private is not None and plan.private.profile == EXAMPLE  # no task has more steps than local_steps
    task_tokens, schedule = plan.task_tokens, plan.schedule

    def rate_multiplier(done: int, total: int) -> float:
        """Return the rate at a task's end, which holds for the whole task.

        Warm-up must not waste the first tasks at a rate of 0.
        """
        return schedule.rate(done + task_tokens, total)

    return EngineSettings(
        run=run,
        tokens=training.tokens,
        asynchronous=plan.asynchronous,
        worker=encrypted(masked(worker_settings(plan), plan, exchanged), plan),
        manifest=manifest,
        leases=leases(plan),
        payloads=PayloadSettings(
            exchanged=exchanged,
            partitions=partitions,
            rungs=(hidden,)
            if (hidden := plan.hidden_bytes(exchange))
            else tuple(payload_bytes(choice, largest) for choice in plan.contributions),
            last=payload_bytes(plan.last_compression, exchanged) if plan.last_compression else 0,
            delta=payload_bytes(plan.downlink, largest),
            most=largest_payload,
            memory=max(UPLOAD_MEMORY, 2 * largest_payload),
            max_norm=trust.max_update_norm,
            checkpoint_bytes=payload_growth(plan, exchanged),
            reach=reach(plan, exchange),
            protection=ProtectionSettings(
                budget_settings(plan),
                mask_settings(plan, exchanged),
                plan.run_file.privacy.overhead_limit if plan.private or plan.masking else 0.0,
            ),
        ),
        tasks=TaskSettings(
            rows=rows,
            context=mean_row(plan.run_file),
            needs=RowNeeds(token_bytes, alone, sites=sites),
            batch_size=training.step_rows,
            local_steps=training.local_steps,
            max_local_steps=training.local_steps if even else training.max_local_steps or 10 * training.local_steps,
            pace=training.pace,
            tune=plan.run_file.exchange.auto_tune and not even,
            learning_rate=training.learning_rate,
            rate_multiplier=rate_multiplier,
            seed=plan.run_file.run.seed,
            scheduler=partial(matching.create, plan.scheduler.name, **plan.scheduler.options),
        ),
        versions=VersionSettings(
            staleness=staleness.create(plan.staleness.name, **plan.staleness.options),
            participation=plan.run_file.aggregation.outer_weighting == "share"
            and not OUTER.entry(plan.outer.name).declares.divides,
            outer_rate=float(plan.outer.options["learning_rate"]),
            buffer_size=plan.buffer_size,
            minimum_nodes=plan.aggregation.minimum_nodes,
            wanted_nodes=plan.aggregation.wanted,
            yields=plan.aggregation.fallback is not None,
            flush=plan.last_compression is not None,
            sync_window=controller.sync_window,
            sync_longest_wait=controller.sync_longest_wait,
            checkpoint_seconds=controller.checkpoint_seconds,
            gate=GateSettings(trust.loss_gate or 0, secret),
        ),
        evaluations=EvaluationSettings(
            times=evaluation.times,
            rows=evaluation.rows if evaluation.by == "sites" else min(evaluation.rows, held_out),
            row_tokens=longest_row(plan.run_file),
            file=rows.num_shards,
            by_workers=evaluation.by != "controller",
            by_sites=evaluation.by == "sites",
            most_loss=most_loss(model),
            stop_early=stop_early(plan),
            measures=wanted_of(plan.run_file).any,
        ),
        audits=AuditSettings(trust.audits, secret, TOLERANCE[training.precision], PERTURBATION[training.precision]),
        scores=ScoreSettings(trust.scores, secret),
    )


def mask_settings(plan: Plan, exchanged: int) -> MaskSettings | None:
    """Return the settings of masked sums of `exchanged` values; None where updates travel in clear."""
    terms = plan.masking
    if terms is None:
        return None
    training = plan.run_file.training
    most_steps = training.local_steps if training.pace == "fixed" else training.max_local_steps
    return MaskSettings(
        trustees=terms.section.trustees,
        colluding=terms.section.colluding,
        least=terms.least,
        most=terms.section.most,
        patience=terms.section.patience,
        most_tokens=(most_steps or 10 * training.local_steps) * training.step_rows * longest_row(plan.run_file),
        sum_bytes=terms.terms(exchanged).word_bytes,
    )


def masked(settings: WorkerSettings, plan: Plan, exchanged: int) -> WorkerSettings:
    """Return the same with the settings of masked updates of `exchanged` values, where updates are masked."""
    terms = plan.masking
    if terms is None:
        return settings
    weight, ring = staleness.create(plan.staleness.name, **plan.staleness.options).weight, terms.ring
    masks = Masks(
        value_bits=ring.value_bits,
        most_members=ring.most_members,
        limit=ring.clip,
        size=exchanged,
        colluding=terms.section.colluding,
        group=terms.group,
        least=max(LEAST_GROUP, terms.fewest),
        freshness=tuple(weight(age) for age in range(MOST_AGE + 1)),
        deviation=ring.deviation,
    )
    return replace(settings, uplink=replace(settings.uplink, masks=masks))


def encrypted(settings: WorkerSettings, plan: Plan) -> WorkerSettings:
    """Return the same with the terms of encrypted updates, where updates are encrypted."""
    terms = plan.encryption
    if terms is None:
        return settings
    freshness = staleness.create(plan.staleness.name, **plan.staleness.options).weight
    share = float(plan.outer.options["learning_rate"]) / terms.nodes
    weights = tuple(share * freshness(age) for age in range(MOST_AGE + 1))
    told = Encrypted(terms.section.key, terms.updates, terms.section.bound, weights)
    return replace(settings, uplink=replace(settings.uplink, encryption=told))


def most_loss(model: Mapping[str, Any]) -> float:
    """Return the largest loss that a worker may claim of a version, in nats a token.

    `LOSS_FACTOR` times that of a model which gives all tokens of the vocabulary the same probability.

    >>> round(most_loss({"vocab_size": 256}), 2), most_loss({})
    (16.64, inf)
    """
    size = model.get("vocab_size")
    return LOSS_FACTOR * math.log(max(2, size)) if isinstance(size, int) else math.inf


def reach(plan: Plan, exchange: Exchange) -> Reach:
    """Return how long an update can be in a run of `plan`, from the number of parameters and of published moments."""
    step = INNER.entry(plan.inner.name).declares.reach
    if step is None:
        return Reach()
    leaves_out = plan.fragments[-1] > 1 or not CODECS.entry(plan.compression.name).declares.lossless
    return Reach(
        step(plan.inner.options, plan.run_file.training.gradient_clip, exchange.trained),
        besides=MOST_MOVED * math.sqrt(exchange.exchanged - exchange.trained) if exchange.moments else 0.0,
        tasks=HELD_BACK if plan.error_feedback and leaves_out else 1.0,
    )


def stop_early(plan: Plan) -> PatienceSettings:
    """Return when the run ends before its tokens are used."""
    section = plan.run_file.training.stop_early
    return PatienceSettings(section.patience, section.least_gain) if section is not None else PatienceSettings()


def private_settings(plan: Plan) -> Private | None:
    """Return the clip and the noise of a run with differential privacy; None without."""
    section = plan.private
    if section is None or section.noise == "auto":
        return None
    rate = 1.0 / plan.run_file.training.local_steps if section.profile == EXAMPLE else 0.0
    return Private(section.clip, section.noise, rate)


def budget_settings(plan: Plan) -> PrivacySettings | None:
    """Return the budget of differential privacy that the controller keeps; None without one."""
    found = plan.budget
    if found is None:
        return None
    note = PrivacyBudget(found.unit, found.noise, found.rate, found.epsilon, found.delta, found.steps)
    return PrivacySettings(note, found.spent)


def site_terms(plan: Plan) -> SiteTerms | None:
    """Return the terms for rows that stay with their nodes; None where rows are the run's."""
    data = plan.run_file.data
    if not isinstance(data, SiteData):
        return None
    return SiteTerms(data.held_out, Releases(**data.releases.model_dump()))


def worker_settings(plan: Plan) -> WorkerSettings:
    """Return the settings that the controller decides for all workers, but for those of masks."""
    training, exchange = plan.run_file.training, plan.run_file.exchange
    return WorkerSettings(
        uplink=Uplink(
            codec=plan.compression.name,
            options=dict(plan.compression.options),
            ratios=plan.ratios,
            last=plan.last_compression.name if plan.last_compression else "",
            error_feedback=plan.error_feedback,
            decay=exchange.error_feedback_decay,
            keep=exchange.error_feedback_keep,
            clip=training.update_clip,
            normalize_steps=training.local_steps if plan.run_file.aggregation.normalize_steps else 0,
        ),
        downlink=Downlink(
            codec=plan.downlink.name,
            options=dict(plan.downlink.options),
            merge_lerp=plan.merge_lerp,
            version_momentum=training.version_momentum,
        ),
        inner=Inner(
            batch_size=training.step_rows,
            optimizer=plan.inner.name,
            options=dict(plan.inner.options),
            gradient_clip=training.gradient_clip,
            proximal=training.proximal,
            precision=training.precision,
            decays=training.weight_decay_on,
            checkpoint_activations=training.checkpoint_activations,
            compile=training.compile,
            offload_optimizer=training.offload_optimizer,
        ),
        fragments=plan.fragments[-1],
        overlap=plan.overlap,
        stateless=plan.stateless,
        shares=plan.shares,
        private=private_settings(plan),
        site=site_terms(plan),
    )
