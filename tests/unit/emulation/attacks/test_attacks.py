"""Attacks against their formulas: the update of an attacker's executor, beside that of an honest one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.rows import text_rows
from torch import Tensor

from barnraise import compression
from barnraise.assembly.trial import planned
from barnraise.cli import main
from barnraise.config.load import document, dump, load
from barnraise.core.errors import OptionError, PayloadError, UnknownNameError
from barnraise.core.types import Audit, Contribution, Flush, ParameterRange, RowRange, Train
from barnraise.data.meta import Format
from barnraise.emulation.attacks.base import HONEST
from barnraise.emulation.attacks.board import Scene
from barnraise.emulation.attacks.catalog import CATALOG, create, resolve
from barnraise.emulation.attacks.executor import making
from barnraise.models.build import build
from barnraise.models.config import describe
from barnraise.plan.attacks import attacks_of
from barnraise.training.local import LocalTrainer
from barnraise.worker.building import make_executor

from ....state_machine.engine import told
from ....tasks import train

STEPS, SIZE, VOCABULARY = 4, 2, 40
FORMAT = Format(kind="text", tokenizer="bytes", context=16, vocab_size=VOCABULARY)
ROWS = np.random.default_rng(0).integers(0, VOCABULARY, (8 * STEPS * SIZE, 16)).astype(np.uint16)
SHAPE = {"hidden_size": 8, "num_layers": 1, "num_heads": 2}
RUN = """
model: {architecture: gpt2, config: {hidden_size: 16, num_layers: 1, num_heads: 2}}
data: {kind: text, files: [story.txt], context: 16}
workers: [{name: ann}, {name: eve, attack: ATTACK}]
training: {tokens: 10_000, batch_size: 4, local_steps: 4}
"""


def worker(attack: dict[str, Any] | None = None, node: str = "eve", **uplink: Any) -> Any:
    """Return an executor at version 0 of a small model: an honest one, or one that attacks."""
    module = build(describe({"architecture": "gpt2", "config": SHAPE}, VOCABULARY, 16), 0)
    trainer = LocalTrainer(module, optimizer="sgd", options={"momentum": 0.0, "weight_decay": 0.0}, gradient_clip=None)
    rows: Any = SimpleNamespace(rows=lambda shard, start, stop: text_rows(ROWS[start:stop]), meta=FORMAT, folder=Path())
    make = making(attack, node) if attack else make_executor
    executor: Any = make(trainer, rows, told(uplink=uplink), 0.0)
    executor.replica.copy_(trainer.flat.vector)
    return executor


def section_of(name: str) -> dict[str, Any]:
    """Return the update of the attack with its defaults."""
    options = CATALOG.entry(name).options
    nested = {option.name: {"kind": "zero"} for option in options if option.type is dict}
    return {"kind": name} | nested | {option.name: "\x07" for option in options if option.default == ""}


def task(executor: Any, number: int = 1, steps: int = STEPS) -> Train:
    """Return the next rows of a training task."""
    rows, whole = STEPS * SIZE, ParameterRange(0, len(executor.replica))
    span = (RowRange(0, number % 8 * rows, number % 8 * rows + rows),)
    return train(number, rows=span, tokens=16 * rows, steps=steps, batch_size=SIZE, parameters=whole)


def hand_in(executor: Any, number: int = 1, steps: int = STEPS) -> Contribution:
    found = executor.train(task(executor, number, steps), lambda step: None).result()
    assert found is not None
    return found


def sent(executor: Any, number: int = 1) -> Tensor:
    """Return the update as the controller decodes it, from the bytes and the claimed codec alone."""
    found = hand_in(executor, number)
    payload = executor.payloads[number]
    assert found.payload == payload.blob
    return executor.sent_in[found.codec].decode(bytes(payload.data), len(executor.replica))


@pytest.mark.parametrize("codec", ["none", "int8"])
@pytest.mark.parametrize(
    ("attack", "factor"),
    [
        ({"kind": "sign_flip"}, -1.0),
        ({"kind": "sign_flip", "factor": 3}, -3.0),
        ({"kind": "scale"}, 10.0),
        ({"kind": "zero"}, 0.0),
    ],
)
def test_the_decoded_attack_is_a_multiple_of_the_honest_update(
    attack: dict[str, Any], factor: float, codec: str
) -> None:
    expected = factor * sent(worker())
    rounded = 0.0 if codec == "none" else float(expected.abs().max()) / 127 / 2
    torch.testing.assert_close(sent(worker(attack, codec=codec)), expected, rtol=1e-5, atol=1.001 * rounded + 1e-9)


def test_error_feedback_holds_what_a_codec_left_out_of_the_lies() -> None:
    honest, liar = worker(), worker({"kind": "sign_flip"}, codec="topk", options={"ratio": 0.1})
    meant = sum(sent(honest, number) for number in (1, 2, 3))
    came = sum(sent(liar, number) for number in (1, 2, 3))
    torch.testing.assert_close(came + liar.path.feedback.residual, -meant, rtol=1e-4, atol=1e-6)


def test_a_worker_clips_its_lies_as_it_would_its_updates() -> None:
    found = sent(worker({"kind": "scale", "factor": 1e6}, clip=0.25))
    assert float(found.norm()) == pytest.approx(0.25, rel=1e-4)
    assert float(torch.cosine_similarity(found, sent(worker()), dim=0)) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("sigma", [0.0, 0.5, 20.0])
def test_noise_is_so_many_times_as_long_as_the_update(sigma: float) -> None:
    update = sent(worker())
    noise = sent(worker({"kind": "noise", "sigma": sigma})) - update
    assert float(noise.norm() / update.norm()) == pytest.approx(sigma, rel=0.1, abs=1e-6)
    assert abs(float(torch.cosine_similarity(noise, update, dim=0))) < 0.15


def test_noise_is_of_the_seed_the_node_and_the_task() -> None:
    def noise(number: int = 1, node: str = "eve", seed: int = 7) -> Tensor:
        vector = torch.ones(1000)
        create({"kind": "noise", "seed": seed}).update(vector, Scene(f"{node} {number}"))
        return vector

    assert torch.equal(noise(), noise())
    for other in (noise(number=2), noise(node="bob"), noise(seed=8)):
        assert float(torch.cosine_similarity(noise() - 1.0, other - 1.0, dim=0)) < 0.2
    attack = {"kind": "noise", "seed": 7}
    assert torch.equal(sent(worker(attack)), sent(worker(attack)))
    assert not torch.equal(sent(worker(attack)), sent(worker(attack, node="bob")))


def test_a_replay_is_the_first_update_of_its_process_whatever_comes() -> None:
    honest, liar = worker(), worker({"kind": "stale_replay"})
    first = sent(honest)
    for number in (1, 2, 3):
        assert torch.equal(sent(liar, number), first)
    assert not torch.equal(sent(honest, 2), first)
    other = worker({"kind": "stale_replay"})  # the attack of a process of its own
    assert not torch.equal(sent(other, 5), first)


@pytest.mark.parametrize("codec", compression.names())
@pytest.mark.parametrize("kind", ["nan", "inf"])
def test_a_non_finite_attack_has_the_right_length_and_is_refused(kind: str, codec: str) -> None:
    executor = worker({"kind": kind}, codec=codec)
    found, size = hand_in(executor), len(executor.replica)
    data = bytes(executor.payloads[1].data)
    assert found.payload == executor.payloads[1].blob
    assert executor.codecs[0].wrote(data, size)
    with pytest.raises(PayloadError):
        executor.codecs[0].open(data, size, 0)


@pytest.mark.parametrize("kind", ["nan", "inf"])
def test_the_final_residual_of_a_non_finite_attack_is_refused(kind: str) -> None:
    executor = worker({"kind": kind}, codec="topk")
    hand_in(executor)
    whole = ParameterRange(0, len(executor.replica))
    executor.flush(Flush(id=2, base=0, parameters=whole))
    with pytest.raises(PayloadError):
        executor.codecs[0].open(bytes(executor.payloads[2].data), len(executor.replica), 0)


@pytest.mark.parametrize(("kind", "is_so"), [("nan", np.isnan), ("inf", np.isposinf)])
def test_every_element_is_not_finite_where_nothing_is_compressed(kind: str, is_so: Any) -> None:
    executor = worker({"kind": kind})
    hand_in(executor)
    assert is_so(np.frombuffer(bytes(executor.payloads[1].data)[20:], "<f4")).all()


@pytest.mark.parametrize("accepted", [True, False])
def test_an_attacker_that_sends_non_finite_values_continues_training(accepted: bool) -> None:
    """Its residual has the update that it would have sent, not the bytes that it did."""
    executor, honest = (worker(attack, codec="topk") for attack in ({"kind": "nan"}, None))
    for number in (1, 2, 3):
        for one in (executor, honest):
            hand_in(one, number)
            one.settle(number, accepted)
    assert (executor.payloads, honest.payloads) == ({}, {})
    assert torch.equal(executor.path.feedback.residual, honest.path.feedback.residual)
    assert torch.equal(executor.course.start, honest.course.start)


@pytest.mark.parametrize("normalize", [0, STEPS])
def test_a_lazy_worker_sends_the_update_of_few_steps_with_the_claims_of_all(normalize: int) -> None:
    heard: list[int] = []
    liar, honest = worker({"kind": "lazy", "share": 0.5}, normalize_steps=normalize), worker()
    found = liar.train(task(liar), heard.append).result()
    assert heard == [1, 2]
    assert found.steps == STEPS
    hand_in(honest, steps=2)
    expected = honest.codecs[0].decode(honest.payloads[1].encoded)
    torch.testing.assert_close(liar.codecs[0].decode(liar.payloads[1].encoded), expected)


def test_a_label_flipper_trains_on_the_mirror_images() -> None:
    reference, honest = worker(), sent(worker())
    start, wanted = reference.replica.clone(), task(reference)
    reference.trainer.load(start)
    for batch in reference.batches(wanted):
        labels = batch["labels"]
        mirrored = np.where(labels >= 0, VOCABULARY - 1 - labels, labels)
        reference.trainer.step(batch | {"labels": mirrored}, wanted.learning_rate)
    found = sent(worker({"kind": "label_flip"}))
    torch.testing.assert_close(found, start - reference.trainer.flat.vector)
    assert float((found - honest).norm()) > 0.1 * float(honest.norm())


def test_an_attacker_now_and_then_is_honest_in_between() -> None:
    section = {"kind": "intermittent", "share": 0.3, "seed": 5, "of": {"kind": "sign_flip", "factor": 2}}
    attack = create(section)
    acts = [attack.in_task(f"eve {number}") is not HONEST for number in range(1, 2001)]
    assert np.mean(acts) == pytest.approx(0.3, abs=0.04)
    assert acts == [create(section).in_task(f"eve {number}") is not HONEST for number in range(1, 2001)]
    assert acts != [attack.in_task(f"bob {number}") is not HONEST for number in range(1, 2001)]
    assert acts != [create(section | {"seed": 6}).in_task(f"eve {number}") is not HONEST for number in range(1, 2001)]
    liar, honest = worker(section), worker()
    seen = set()
    for number in range(1, 9):
        factor = -2.0 if acts[number - 1] else 1.0
        torch.testing.assert_close(sent(liar, number), factor * sent(honest, number), rtol=1e-5, atol=1e-9)
        seen.add(factor)
    assert seen == {-2.0, 1.0}


@pytest.mark.parametrize("name", CATALOG.names())
def test_an_attacker_audits_honestly(name: str) -> None:
    """The attacker repeats audits honestly, and then trains its own tasks as before."""
    liar, honest = worker(section_of(name)), worker()
    audit = Audit(id=9, base=0, train=task(honest), back=(), seed=3)
    hand_in(liar)
    liar.reached = None
    found, expected = (one.audit(audit, lambda blob: b"", lambda step: None) for one in (liar, honest))
    assert found.steps == STEPS
    assert msgspec.structs.replace(found, seconds=0.0) == msgspec.structs.replace(expected, seconds=0.0)


@pytest.mark.parametrize("name", CATALOG.names())
def test_every_attack_says_what_it_is(name: str) -> None:
    found, options = resolve(section_of(name))
    assert found == name
    assert options.keys() == CATALOG.entry(name).known_options
    assert type(create(section_of(name))).__doc__


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({}, "an attack needs its kind .*sign_flip"),
        ({"kind": "nois"}, "unknown attack 'nois'; did you mean 'noise'"),
        ({"kind": "lazy", "shear": 0.1}, "attack 'lazy' has no option 'shear'; did you mean 'share'"),
        ({"kind": "noise", "sigma": -1}, "option 'sigma' is -1.0, but must be at least 0"),
        ({"kind": "noise", "sigma": float("nan")}, "option 'sigma' is nan"),
        ({"kind": "intermittent"}, "option 'of' is None, but must be the section of another attack, as in of: {kind"),
        ({"kind": "intermittent", "of": "zero"}, "option 'of' is 'zero', but must be the section"),
        ({"kind": "backdoor", "trigger": "sesame"}, "attack 'backdoor' needs its option 'output': what is to follow"),
        ({"kind": "alie", "z": "far"}, "option 'z' is 'far'"),
        ({"kind": "optimised_ipm", "rule": "nnm"}, "option 'rule' is nnm, but must be one of mean"),
        ({"kind": "intermittent", "of": {"kind": "zer"}}, "unknown attack 'zer'; did you mean 'zero'"),
    ],
)
def test_an_unsound_section_is_refused(section: dict[str, Any], message: str) -> None:
    with pytest.raises((UnknownNameError, OptionError), match=message):
        making(section, "eve")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "story.txt").write_text("once upon a time\n" * 100)
    return tmp_path


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        ("{kind: sing_flip}", "workers[1].attack: unknown attack 'sing_flip'; did you mean 'sign_flip'?"),
        ("{kind: sign_flip, factor: 1e9}", "workers[1].attack: attack 'sign_flip': option 'factor' is 1000000000"),
        ("{kind: scale, faktor: 2}", "workers[1].attack: attack 'scale' has no option 'faktor'; did you mean 'factor'"),
        ("{factor: 2}", "workers[1].attack.kind: is missing; give the name of an attack"),
        ("zero", "workers[1].attack: is 'zero' (text), but must be a section with the `kind` of an attack"),
    ],
)
def test_a_run_files_mistakes_are_told_with_their_line(
    folder: Path, capsys: pytest.CaptureFixture[str], attack: str, message: str
) -> None:
    (folder / "run.yaml").write_text(RUN.replace("ATTACK", attack))
    assert main.main(["check", "run.yaml"]) == 2
    told_so = capsys.readouterr().err
    assert f"run.yaml:4: {message}" in told_so


def test_a_run_file_keeps_its_attacks(folder: Path) -> None:
    attack = "{kind: intermittent, share: 0.25, of: {kind: noise, sigma: 2}}"
    (folder / "run.yaml").write_text(RUN.replace("ATTACK", attack))
    run_file = load("run.yaml")
    (folder / "again.yaml").write_text(dump(run_file))
    assert load("again.yaml") == run_file
    (found,) = attacks_of(load("again.yaml"))
    options = {"kind": "intermittent", "share": 0.25, "of": {"kind": "noise", "sigma": 2}}
    assert found == (("workers", 1, "attack"), "eve", options)


def test_attacks_of_later_joiners_are_checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    joins = "faults: [{at: 0.5, join: {name: mal, attack: {kind: zer}}}]\n"
    (folder / "run.yaml").write_text(RUN.replace("ATTACK", "{kind: zero}") + joins)
    assert main.main(["check", "run.yaml"]) == 2
    assert "faults[0].join.attack: unknown attack 'zer'" in capsys.readouterr().err


def test_where_work_is_only_costed_an_attack_is_said_to_have_no_effect(folder: Path) -> None:
    (folder / "run.yaml").write_text(RUN.replace("ATTACK", "{kind: zero}"))
    plan, _ = planned(document("run.yaml"))
    assert [str(warning) for warning in plan.warnings if "attack" in str(warning)] == [
        "workers[1].attack: has no effect where work is only costed; simulate with --real, or leave it out"
    ]
    plan, _ = planned(document("run.yaml"), real=True)
    assert not [warning for warning in plan.warnings if "attack" in str(warning)]
