"""Measurement by the run's metrics: when the controller measures, and what the run's end waits for."""

from __future__ import annotations

from barnraise.controller.state import effects
from barnraise.controller.state import events as ev
from barnraise.ledger import notes
from barnraise.ledger.decisions import Noted
from barnraise.ledger.measured import TextSample

from ....state_machine.engine import Engine, contribution, engine_settings

SAMPLE = TextSample("once", "upon")


def run(**changes: object) -> Engine:
    engine = Engine(engine_settings(**({"measures": True, "times": 4, "buffer_size": 1} | changes)))
    engine.hello("a")
    return engine


def measures(engine: Engine) -> list[effects.Measure]:
    return [job for job in engine.jobs if isinstance(job, effects.Measure)]


def answer(engine: Engine, job: effects.Measure, **failures: str) -> None:
    engine.jobs.remove(job)
    newest = engine.state.newest.version
    engine.handle(effects.Measured(job.epoch, newest, {"right": 0.5}, (SAMPLE,), failures))


def train(engine: Engine, times: int = 1) -> None:
    """The node contributes, and versions are made of it; evaluations of the loss are done at once."""
    for _ in range(times):
        engine.next("a")
        for task in list(engine.held["a"].values()):
            engine.offer("a", contribution(task))
        other = effects.Inspect | effects.Aggregate | effects.Evaluate | effects.Checkpoint
        while jobs := [job for job in engine.jobs if isinstance(job, other)]:
            engine.answer(jobs[0])


def told(engine: Engine, kind: type[notes.Note]) -> list[notes.Note]:
    return [d.note for d in engine.journal if isinstance(d, Noted) and isinstance(d.note, kind)]


def test_versions_are_measured_over_the_run_and_the_last_one_before_its_end() -> None:
    engine = run()
    versions = []
    for _ in range(40):
        if engine.state.progress.finished:
            break
        for job in measures(engine):
            answer(engine, job)
            versions.append(engine.state.record.measured)
        train(engine)
    assert engine.state.progress.finished
    assert versions[0] == 0
    assert versions[-1] == engine.state.newest.version
    assert 4 <= len(versions) <= 6
    found = told(engine, notes.Measured)
    assert [note.version for note in found if isinstance(note, notes.Measured)] == versions
    assert found[0] == notes.Measured(0, 0, {"right": 0.5}, (SAMPLE,))


def test_a_version_that_comes_while_another_is_measured_is_passed_over() -> None:
    engine = run()
    train(engine, times=12)
    assert len(measures(engine)) == 1
    answer(engine, measures(engine)[0])
    assert not measures(engine), "the run has not advanced since"
    assert engine.state.record.measured == engine.state.newest.version


def test_the_end_of_a_run_waits_for_the_last_measurement() -> None:
    engine = run()
    train(engine, times=30)
    assert engine.state.progress.final
    assert not engine.state.progress.finished
    for _ in range(2):
        for job in measures(engine):
            answer(engine, job)
        train(engine)
    assert engine.state.progress.finished


def test_a_run_that_is_stopped_measures_its_last_version() -> None:
    engine = run()
    answer(engine, measures(engine)[0])
    train(engine, times=2)
    engine.handle(ev.StopRequested("asked to"))
    train(engine)
    assert engine.state.progress.final
    (job,) = measures(engine)
    answer(engine, job)
    assert engine.state.progress.finished
    assert engine.state.record.measured == engine.state.newest.version > 0


def test_a_run_without_metrics_measures_nothing() -> None:
    engine = run(measures=False)
    train(engine, times=30)
    assert engine.state.progress.finished
    assert not told(engine, notes.Measured)


def test_a_metric_that_fails_is_on_the_ledger_and_ends_nothing() -> None:
    engine = run()
    answer(engine, measures(engine)[0], exact_match="it raised")
    assert told(engine, notes.MetricFailed) == [notes.MetricFailed(0, "exact_match", "it raised")]
    assert engine.state.record.measured == 0


def test_an_answer_to_an_earlier_controller_is_dropped() -> None:
    engine = run()
    job = measures(engine)[0]
    engine.handle(effects.Measured(job.epoch + 1, 0, {"right": 1.0}))
    assert engine.state.record.measured == -1
    assert not told(engine, notes.Measured)
