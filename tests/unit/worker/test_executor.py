"""The parameters of a worker while versions come in: its own work is never lost, and never counted twice."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.rows import text_rows
from torch import Tensor

from barnraise import compression
from barnraise.core.errors import PayloadError
from barnraise.core.sketches import compare, sketch
from barnraise.core.types import Audit, Blob, Evaluate, News, ParameterRange, RowRange, Train, Update
from barnraise.data.meta import Format
from barnraise.models.build import build
from barnraise.models.config import describe
from barnraise.models.exchange.layout import Layout
from barnraise.models.vectors import digest
from barnraise.training.causal_lm import CausalLM
from barnraise.training.device import EXCHANGED_VECTORS
from barnraise.training.local import LocalTrainer
from barnraise.training.transfers import DONE, Transfer, copy_out
from barnraise.worker.device_session import DeviceSession
from barnraise.worker.executor import WorkerExecutor
from barnraise.worker.past import Past, Perturbed

from ...state_machine.engine import WORKER_SETTINGS, told
from ...tasks import train

SIZE, STEPS = 50, 4
SHAPE = {"hidden_size": 8, "num_layers": 1, "num_heads": 2}
FORMAT = Format(kind="text", tokenizer="bytes", context=16, vocab_size=40)
CODEC = compression.create("none")
LAYOUT = Layout.of([("w", (SIZE,))])


class Trainer:
    """Each step adds the next of some vectors to the parameters; one with a NaN in it is skipped."""

    exchanges_on_device = False

    def __init__(self, steps: Iterator[Tensor]) -> None:
        self.followed: list[tuple[Tensor, int]] = []
        self.forgotten = self.ramps = 0
        self.fresh = False
        self.steps, self.flat = steps, SimpleNamespace(vector=torch.zeros(SIZE), layout=LAYOUT, loads=0)
        self.device, self.reading, self.problem, self.raised = torch.device("cpu"), DONE, CausalLM(), ""

    def load(self, parameters: Tensor) -> None:
        self.flat.vector.copy_(parameters)
        self.flat.loads += 1

    def anchor(self) -> None:
        pass

    def copy_out(self, into: Tensor, pool: Executor | None) -> Transfer:
        self.reading = copy_out(self.flat.vector, into, pool)
        return self.reading

    def shift(self, offset: Tensor) -> Transfer:
        self.reading.hold()
        self.flat.vector.add_(offset)
        return DONE

    def follow(self, movement: Tensor, steps: int, rate: float, share: float) -> None:
        self.followed.append((movement.clone(), steps))

    def forget(self) -> None:
        self.forgotten += 1

    def ramp(self) -> None:
        self.ramps += 1

    def anew(self) -> Trainer:
        return self

    def run(self, batches: Any, rate: float, after_step: Callable[[int], bool]) -> tuple[int, float]:
        taken = 0
        for step in range(1, STEPS + 1):
            vector = next(self.steps)
            self.reading.hold()
            if not vector.isnan().any():
                self.flat.vector.add_(vector)
                taken += 1
            if not after_step(step):
                break
        return taken, 1.0


def make(codec: str = "none", on_device: bool = False, **downlink: Any) -> tuple[WorkerExecutor, list[Tensor]]:
    """An executor that encodes by `codec` and takes versions in so, and the steps that it will take."""
    generator = torch.Generator().manual_seed(0)
    steps = [torch.randn(SIZE, generator=generator) for _ in range(5 * STEPS)]
    rows: Any = SimpleNamespace(rows=lambda shard, start, stop: text_rows(np.zeros((stop - start, 4))), meta=None)
    trainer: Any = Trainer(iter(steps))
    trainer.exchanges_on_device = on_device
    return WorkerExecutor(trainer, rows, told(uplink={"codec": codec}, downlink=downlink)), steps


def task(number: int, share: float = 0.25, merged: int = 0) -> Train:
    rows, whole = (RowRange(0, 0, 2),), ParameterRange(0, SIZE)
    return train(number, rows=rows, tokens=8, steps=STEPS, parameters=whole, merged=merged, share=share)


def publish(executor: WorkerExecutor, version: int, delta: Tensor, merged: int, share: float) -> None:
    """A version arrives, `delta` beyond the one before."""
    encoded = CODEC.encode(delta)
    blob = Blob(hashlib.sha256(encoded.payload).hexdigest(), encoded.num_bytes)
    update = Update("delta", version, blob, digest(executor.replica + CODEC.decode(encoded)))
    assert executor.update(News((update,), merged, share), lambda _: bytes(encoded.payload)) == version


def sent(executor: WorkerExecutor, number: int) -> Tensor:
    """Return the submitted update, as progress."""
    return -CODEC.decode(executor.payloads[number].encoded)


@pytest.mark.parametrize("lerp", [0.0, 0.6])
def test_a_lone_worker_trains_as_if_it_had_never_handed_anything_in(lerp: float) -> None:
    executor, steps = make(merge_lerp=lerp)

    def on_step(step: int) -> None:
        if step == 2 and number > 1:  # the version made of the task before arrives in the midst of this one
            publish(executor, number - 1, sent(executor, number - 1), merged=number - 1, share=1.0)

    for number in range(1, 6):
        executor.train(task(number, share=1.0), on_step)
    torch.testing.assert_close(executor.course.start, sum(steps))


def test_a_version_applied_between_steps_is_not_part_of_the_update() -> None:
    executor, steps = make()
    others = torch.full((SIZE,), 3.0)
    executor.train(task(1), lambda step: None)
    own = sum(steps[:STEPS])
    torch.testing.assert_close(sent(executor, 1), own)
    publish(executor, 1, others, merged=0, share=0.25)  # without its own contribution

    def on_step(step: int) -> None:
        if step == 3:
            publish(executor, 2, 0.25 * own, merged=1, share=0.25)

    executor.train(task(2), on_step)
    progress = sum(steps[STEPS : 2 * STEPS])
    torch.testing.assert_close(sent(executor, 2), progress)
    # at the third step: both versions, a quarter of three steps; then the fourth step
    expected = others + 0.25 * own + 0.25 * sum(steps[STEPS : STEPS + 3]) + steps[2 * STEPS - 1]
    torch.testing.assert_close(executor.course.start, expected)


@pytest.mark.parametrize("share", [0.25, 1.0])
@pytest.mark.parametrize("on_device", [False, True])
def test_momentum_follows_what_the_versions_moved_over_ones_own_last_steps(on_device: bool, share: float) -> None:
    executor, _ = make("sparse_loco" if on_device else "none", on_device, version_momentum=1.0)
    assert isinstance(executor.course, DeviceSession) == on_device
    trainer: Any = executor.trainer
    deltas = [torch.full((SIZE,), float(version)) for version in range(1, 4)]

    def on_step(step: int) -> None:
        if number == 1 and step in (1, 3):  # too early to tell a speed by; then both together
            publish(executor, step // 2 + 1, deltas[step // 2], merged=0, share=share)
        if number == 2 and step == 2:
            publish(executor, 3, deltas[2], merged=1, share=share)

    for number in (1, 2):
        executor.train(task(number, share=share), on_step)
    expected = [] if share == 1.0 else [(deltas[0] + deltas[1], 3), (deltas[2], 3)]
    assert [steps for _, steps in trainer.followed] == [steps for _, steps in expected]
    for (movement, _), (wanted, _) in zip(trainer.followed, expected, strict=True):
        torch.testing.assert_close(movement, wanted)


def test_the_vectors_of_an_exchange_on_a_device_are_made_before_the_first_step() -> None:
    """Later the trainer's batches may fill the device."""
    executor, _ = make("sparse_loco", on_device=True, version_momentum=1.0)
    course: Any = executor.course
    assert len(course._free) == EXCHANGED_VECTORS - 1

    def on_step(step: int) -> None:
        if step == 2:
            publish(executor, number, torch.full((SIZE,), 0.1), number - 1, 0.25)

    for number in range(1, 6):
        executor.train(task(number), on_step)
        executor.settle(number, number != 3)
    feedback: Any = executor.path.feedback
    held = [*course._free, course.start, feedback.residual]
    assert len({vector.data_ptr() for vector in held}) == len(held) <= EXCHANGED_VECTORS


def test_a_worker_without_a_new_version_continues_from_its_own_parameters() -> None:
    executor, steps = make()
    for number in (1, 2):
        executor.train(task(number), lambda step: None)
    torch.testing.assert_close(executor.course.start, sum(steps[: 2 * STEPS]))


def test_the_lerp_keeps_a_share_of_where_the_worker_was() -> None:
    executor, steps = make(merge_lerp=0.6)
    executor.train(task(1), lambda step: None)
    assert executor.course.start is not None
    reached = executor.course.start.clone()
    publish(executor, 1, torch.ones(SIZE), merged=1, share=0.25)
    executor.train(task(2), lambda step: None)
    expected = 0.4 * torch.ones(SIZE) + 0.6 * reached + sum(steps[STEPS : 2 * STEPS])
    torch.testing.assert_close(executor.course.start, expected)


def test_a_refused_contribution_is_not_waited_for() -> None:
    executor, _ = make()
    executor.train(task(1), lambda step: None)
    executor.settle(1, accepted=False)
    assert executor.course.unmerged == {}


def test_a_version_that_does_not_hash_to_its_name_is_not_taken_in() -> None:
    executor, steps = make()
    executor.train(task(1), lambda step: None)
    encoded = CODEC.encode(torch.ones(SIZE))
    update = Update("delta", 1, Blob("0" * 64, encoded.num_bytes), "0" * 64)
    assert executor.update(News((update,), 1, 0.25), lambda _: bytes(encoded.payload)) == -1
    executor.train(task(2), lambda step: None)
    torch.testing.assert_close(executor.course.start, sum(steps[: 2 * STEPS]))


def drop_out(seed: int) -> Tensor:
    """Where a task with this seed leads a model with dropout, whatever others have drawn before."""
    torch.rand(7)  # other random numbers of the process
    module = build(describe({"architecture": "gpt2", "config": {**SHAPE, "resid_pdrop": 0.5}}, 40, 16), 0)
    trainer = LocalTrainer(module, optimizer="sgd", options={"momentum": 0.0, "weight_decay": 0.0}, gradient_clip=None)
    rows: Any = SimpleNamespace(rows=lambda *_: text_rows(np.tile(np.arange(16), (2, 1))), meta=FORMAT)
    executor = WorkerExecutor(trainer, rows, WORKER_SETTINGS)
    executor.replica.copy_(trainer.flat.vector)
    whole = ParameterRange(0, SIZE)
    executor.train(train(rows=(RowRange(0, 0, 2),), tokens=32, steps=1, seed=seed, parameters=whole), lambda step: None)
    assert executor.course.start is not None
    return executor.course.start


def test_dropout_follows_the_tasks_seed_alone() -> None:
    """Forked workers share the process's dice; and a simulation's nodes would disturb each other's."""
    before = torch.get_rng_state()
    assert torch.equal(drop_out(1), drop_out(1))
    assert not torch.equal(drop_out(1), drop_out(2))
    torch.set_rng_state(before)
    torch.rand(7)
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    drop_out(1)
    assert torch.equal(torch.get_rng_state(), after), "a task must leave the dice as they were"


def test_a_piece_of_a_task_is_its_steps_batches_alone() -> None:
    """A piece reads the same batches, whatever other nodes do before and behind it."""

    class Reader(Trainer):
        def run(self, batches: Any, rate: float, after_step: Callable[[int], bool]) -> tuple[int, float]:
            read.append([sorted(batch["input_ids"][:, 0]) for batch in batches])
            return 0, 0.0

    read: list[list[list[int]]] = []
    rows: Any = SimpleNamespace(rows=lambda *_: text_rows(np.arange(12 * 4).reshape(12, 4)), meta=FORMAT)
    executor = WorkerExecutor(Reader(iter(())), rows, WORKER_SETTINGS)  # type: ignore[arg-type]
    for skip, steps in ((0, 6), (0, 1), (1, 3), (4, 2)):
        whole = ParameterRange(0, SIZE)
        piece = train(rows=(RowRange(0, 0, 12),), steps=steps, seed=7, parameters=whole, skip=skip)
        executor.train(piece, lambda step: None)
    whole_read, *pieces = read
    assert len(whole_read) == 6
    assert [batch for piece_read in pieces for batch in piece_read] == whole_read


def test_a_task_of_which_no_step_could_be_taken_leaves_everything_as_it_was() -> None:
    executor, steps = make()
    trainer: Any = executor.trainer
    executor.train(task(1), lambda step: None)
    for vector in steps[STEPS : 2 * STEPS]:
        vector[3] = math.nan
    assert executor.train(task(2), lambda step: None).result() is None
    assert list(executor.payloads) == [1]
    assert trainer.forgotten == 0
    executor.settle(1, accepted=True)
    executor.train(task(3), lambda step: None)  # from the published version, which is 0
    torch.testing.assert_close(executor.course.start, sum(steps[2 * STEPS : 3 * STEPS]))


@pytest.mark.parametrize("value", [math.inf, 3e38])
@pytest.mark.parametrize("compression", ["none", "topk", "random_blocks"])
def test_a_task_that_ends_in_parameters_that_are_not_finite_is_forgotten(compression: str, value: float) -> None:
    executor, steps = make(compression)
    trainer: Any = executor.trainer
    executor.replica.fill_(-value if value < math.inf else 0.0)
    steps[1][7] = value
    steps[2][7] = value
    assert executor.train(task(1), lambda step: None).result() is None
    assert (executor.payloads, executor.course.unmerged, trainer.forgotten) == ({}, {}, 1)
    executor.replica.zero_()
    executor.train(task(2), lambda step: None)
    torch.testing.assert_close(executor.course.start, sum(steps[STEPS : 2 * STEPS]))
    residual = executor.path.flush(SIZE)
    assert bool(residual.codec.decode(residual.encoded).isfinite().all())


@pytest.mark.parametrize(("fresh", "base", "ramps"), [(True, 3, 1), (True, 0, 0), (False, 3, 0)])
def test_a_newcomer_to_a_run_under_way_takes_short_steps_first(fresh: bool, base: int, ramps: int) -> None:
    executor, _ = make()
    trainer: Any = executor.trainer
    trainer.fresh = fresh
    executor.train(msgspec.structs.replace(task(1), base=base), lambda step: None)
    assert trainer.ramps == ramps


def audit(back: tuple[Update, ...] = ()) -> Audit:
    """Return the audit of `task`."""
    return Audit(id=9, base=len(back), train=task(3), back=back, seed=5)


def nothing_fetched(blob: Blob) -> bytes:
    raise AssertionError("nothing is to be taken back")


@pytest.mark.parametrize("skipped", [False, True])
def test_an_audit_sketches_the_update_as_it_would_be_sent(skipped: bool) -> None:
    """A batch that is not finite is skipped by both, and counted."""
    executor, steps = make()
    vectors = [vector.clone() for vector in steps[:STEPS]]
    vectors[1] = torch.full((SIZE,), math.nan) if skipped else vectors[1]
    executor.trainer.steps = iter([vector.clone() for vector in vectors])  # type: ignore[attr-defined]
    done = executor.audit(audit(), nothing_fetched, lambda step: None)
    update = -sum(vector for vector in vectors if not vector.isnan().any()).numpy()  # type: ignore[union-attr]
    wanted = sketch(lambda start, out: np.copyto(out, update[start : start + len(out)]), SIZE, 5)
    assert (done.steps, done.assignment) == (STEPS, 9)
    assert compare(wanted, done.sketch) == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-6))
    assert executor.course.start is None, "it trains on from where it was"


def test_a_failed_audit_has_no_steps_and_raises_nothing() -> None:
    executor, _ = make()

    def run(*arguments: Any) -> tuple[int, float]:
        raise torch.OutOfMemoryError("no room for moments")

    executor.trainer.run = run  # type: ignore[method-assign]
    assert executor.audit(audit(), nothing_fetched, lambda step: None).steps == 0
    executor, _ = make()
    executor.trainer.steps = iter([torch.full((SIZE,), math.inf)] * STEPS)  # type: ignore[attr-defined]
    assert executor.audit(audit(), nothing_fetched, lambda step: None).steps == 0
    executor, _ = make()
    assert executor.audit(audit(), nothing_fetched, lambda step: executor.cut.set()).steps == 0, "it was cut short"


@pytest.mark.parametrize("kind", ["snapshot", "delta"])
def test_an_audit_with_wrong_deltas_has_no_steps(kind: Any) -> None:
    executor, _ = make()
    wrong = Update(kind, 1, Blob("d" * 64, 3), "1" * 64)
    assert executor.audit(audit((wrong,)), lambda blob: b"abc", lambda step: None).steps == 0


def test_deltas_are_taken_back() -> None:
    executor, _ = make()
    generator, back, contents = torch.Generator().manual_seed(1), [], {}
    before = executor.replica.clone()
    for version in (1, 2):
        encoded = CODEC.encode(torch.randn(SIZE, generator=generator))
        blob = Blob(hashlib.sha256(encoded.payload).hexdigest(), encoded.num_bytes)
        contents[blob.digest] = bytes(encoded.payload)
        back.append(Update("delta", version, blob, digest(executor.replica + CODEC.decode(encoded))))
        assert executor.update(News((back[-1],), 0, 1.0), lambda blob: contents[blob.digest]) == version
    after = executor.replica.clone()
    past = Past(executor.published, 2, back, lambda blob: contents[blob.digest])
    assert torch.allclose(past.at(0), before, atol=1e-6)
    assert torch.allclose(past.at(2), after, atol=1e-6)
    assert torch.allclose(past.movement(1) + past.movement(2), after - before, atol=1e-6)
    fetched = lambda blob: contents[blob.digest]  # noqa: E731
    earlier = Evaluate(id=4, base=2, back=tuple(back), held_out=RowRange(0, 0, 1), batch_size=1, tokens=1)
    assert (earlier.version, torch.allclose(executor.before(earlier, fetched), before, atol=1e-6)) == (0, True)
    newest = Evaluate(id=5, base=2, held_out=RowRange(0, 0, 1), batch_size=1, tokens=1)
    assert executor.before(newest, nothing_fetched) is executor.replica
    assert torch.equal(executor.replica, after), "and the replica stays as it is"
    with pytest.raises(PayloadError, match="version 3 is not there"):
        past.at(3)


def test_perturbed_versions_are_changed_by_a_share_of_themselves() -> None:
    executor, _ = make()
    publish(executor, 1, torch.linspace(-3.0, 3.0, SIZE), merged=0, share=1.0)
    past, share = Past(executor.published, 1, (), nothing_fetched), 2.0**-10
    once, again, other = (Perturbed(past, share, seed).at(1) / past.at(1) for seed in (1, 1, 2))
    assert {round(float(factor), 6) for factor in once} == {round(1.0 - share, 6), round(1.0 + share, 6)}
    assert torch.equal(once, again)
    assert not torch.equal(once, other)
    assert torch.equal(executor.replica, past.at(1)), "and the version stays as it is"


@pytest.fixture
def lane() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_the_next_task_takes_steps_while_the_update_of_the_last_one_waits(lane: ThreadPoolExecutor) -> None:
    executor, steps = make()
    executor.encode_on(lane)
    let = Event()
    lane.submit(let.wait)
    first = executor.train(task(1), lambda step: None)
    taken: list[int] = []

    def on_step(step: int) -> None:
        taken.append(step)
        assert not first.done()
        if step == STEPS:
            let.set()

    second = executor.train(task(2), on_step)
    assert taken == list(range(1, STEPS + 1))
    assert [made.result() is not None for made in (first, second)] == [True, True]
    torch.testing.assert_close(sent(executor, 1), sum(steps[:STEPS]))
    torch.testing.assert_close(sent(executor, 2), sum(steps[STEPS : 2 * STEPS]))


def test_an_error_of_the_encoder_is_the_tasks(lane: ThreadPoolExecutor) -> None:
    executor, _ = make()
    executor.encode_on(lane)
    executor.path.stages.clear()  # nothing encodes
    with pytest.raises(AssertionError):
        executor.train(task(1), lambda step: None).result()


def test_an_error_of_an_offset_ends_the_training(lane: ThreadPoolExecutor) -> None:
    executor, _ = make()
    executor.encode_on(lane)
    executor.train(task(1), lambda step: None).result()
    publish(executor, 1, torch.ones(SIZE), merged=0, share=0.25)
    executor.course.unmerged[1] = None  # type: ignore[assignment]
    with pytest.raises(AttributeError, match="opened"):
        executor.train(task(2), lambda step: lane.submit(int).result() and None)


@pytest.mark.parametrize("late", [False, True])
def test_a_task_that_began_where_the_last_one_went_astray_is_dropped_with_it(
    lane: ThreadPoolExecutor, late: bool
) -> None:
    """The next one starts from the version: also when the encoder is so late that both have ended."""
    executor, steps = make()
    trainer: Any = executor.trainer
    executor.replica.fill_(-3e38)
    steps[1][7] = 3e38
    steps[2][7] = 3e38
    executor.encode_on(lane)
    let = Event()
    lane.submit(let.wait)
    first = executor.train(task(1), lambda step: None)
    second = executor.train(task(2), lambda step: let.set() if step == STEPS or not late else None)
    assert (first.result(), second.result()) == (None, None)
    executor.replica.zero_()
    trainer.steps = iter(steps[:1] * STEPS)
    assert executor.train(task(3), lambda step: None).result() is not None
    assert executor.course.unmerged.keys() == {3}
    assert trainer.forgotten == 1
    torch.testing.assert_close(sent(executor, 3), STEPS * steps[0])


def test_a_measurement_between_two_tasks_does_not_move_the_worker(lane: ThreadPoolExecutor) -> None:
    executor, steps = make()
    executor.encode_on(lane)
    executor.train(task(1), lambda step: None)
    executor.trainer.load(torch.full((SIZE,), 9.0))
    executor.train(task(2), lambda step: None).result()
    torch.testing.assert_close(executor.course.start, sum(steps[: 2 * STEPS]))


def test_no_more_vectors_are_kept_than_a_check_counts(lane: ThreadPoolExecutor) -> None:
    """Residual, start, end, and one more, however many tasks there are."""
    executor, _ = make("topk")
    executor.encode_on(lane)
    made = 0

    def counted(size: int, device: torch.device) -> Tensor:
        nonlocal made
        made += 1
        return torch.empty(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("barnraise.worker.stateful.host_vector", counted)
        for number in range(1, 6):
            publish(executor, number, torch.ones(SIZE), merged=number - 2, share=0.25)
            executor.train(task(number), lambda step: None)
    assert made <= 4


def test_a_task_without_steps_leaves_the_update_before_it(lane: ThreadPoolExecutor) -> None:
    executor, steps = make()
    trainer: Any = executor.trainer
    for nothing in steps[STEPS : 2 * STEPS]:
        nothing.fill_(math.nan)
    executor.encode_on(lane)
    let = Event()
    lane.submit(let.wait)
    first = executor.train(task(1), lambda step: None)
    second = executor.train(task(2), lambda step: let.set() if step == STEPS else None)
    assert second.result() is None
    assert first.result() is not None
    torch.testing.assert_close(sent(executor, 1), sum(steps[:STEPS]))
    assert trainer.forgotten == 0


def test_a_cancelled_encoding_does_not_hold_the_training(lane: ThreadPoolExecutor) -> None:
    """The run ends while an update waits behind other work: the training thread must end too."""
    executor, _ = make()
    pool, let = ThreadPoolExecutor(1), Event()
    executor.encode_on(pool)
    pool.submit(let.wait)
    first = executor.train(task(1), lambda step: None)
    pool.shutdown(wait=False, cancel_futures=True)
    assert first.cancelled()
    with pytest.raises(RuntimeError, match="after shutdown"):
        lane.submit(executor.train, task(2), lambda step: None).result(timeout=20)
    let.set()


def test_a_version_that_becomes_void_moves_nothing(lane: ThreadPoolExecutor) -> None:
    """The offset to a good version waits in the queue when a bad update spoils the replica."""
    executor, steps = make()
    executor.encode_on(lane)
    executor.train(task(1), lambda step: None).result()
    publish(executor, 1, torch.ones(SIZE), merged=0, share=0.25)
    let = Event()
    lane.submit(let.wait)

    def on_step(step: int) -> None:
        if step == 2:
            encoded = CODEC.encode(torch.full((SIZE,), 1e6))
            blob = Blob(hashlib.sha256(encoded.payload).hexdigest(), encoded.num_bytes)
            bad = News((Update("delta", 2, blob, "0" * 64),), 0, 0.25)
            assert executor.update(bad, lambda _: bytes(encoded.payload)) == -1
            let.set()
            lane.submit(int).result()  # the offset is prepared

    executor.train(task(2), on_step).result()
    torch.testing.assert_close(sent(executor, 2), sum(steps[STEPS : 2 * STEPS]))
    torch.testing.assert_close(executor.course.start, sum(steps[: 2 * STEPS]))
