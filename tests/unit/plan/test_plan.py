"""From a run file to a plan: policies with their options, and what is refused before anything starts."""

from __future__ import annotations

import re
from typing import Any

import pytest

from barnraise import aggregation, compression, matching, staleness, training
from barnraise.config import load
from barnraise.config.document import parse
from barnraise.config.load import build
from barnraise.core.errors import RunFileError
from barnraise.plan import Plan, Purpose, payload_bytes, resolve
from barnraise.plan.compatibility import ROWS

BASE: dict[str, Any] = {
    "model": {"architecture": "gpt2"},
    "data": {"kind": "text", "files": ["a"]},
    "workers": [{"name": f"w{index}"} for index in range(4)],
}


def plan(*, purpose: Purpose | None = None, nodes: int | None = None, **sections: Any) -> Plan:
    return resolve(load(BASE | sections), purpose=purpose, nodes=nodes)


def refused(purpose: Purpose | None = None, nodes: int | None = None, **sections: Any) -> list[str]:
    """Every problem of a run file that fits the schema and cannot work."""
    run_file = load(BASE | sections)
    with pytest.raises(RunFileError) as caught:
        resolve(run_file, purpose=purpose, nodes=nodes)
    return [str(problem) for problem in caught.value.problems]


def warned(purpose: Purpose | None = None, **sections: Any) -> list[str]:
    return [str(warning) for warning in plan(purpose=purpose, **sections).warnings]


def test_defaults_make_a_plan_without_warnings() -> None:
    found = plan()
    assert (found.compression.name, found.aggregation.names, found.outer.name) == ("none", ("mean",), "sgd")
    assert found.outer.options == {"learning_rate": 1.0}
    assert found.inner.options == {"beta1": 0.9, "beta2": 0.95, "weight_decay": 0.01}
    assert (found.asynchronous, found.overlap, found.buffer_size, found.task_tokens) == (True, True, None, 20480)
    assert found.warnings == ()


def test_every_choice_can_be_created() -> None:
    found = plan(
        training={"compression": "topk", "downlink_compression": "int8", "aggregation_rule": ["nnm", "trimmed_mean"]}
    )
    assert compression.create(found.compression.name, **found.compression.options)
    assert compression.create(found.downlink.name, **found.downlink.options)
    assert aggregation.create(found.aggregation.names, **found.aggregation.options)
    assert staleness.create(found.staleness.name, **found.staleness.options).bound(0.3) == 167
    assert training.create(found.outer.name, **found.outer.options)
    assert matching.create(found.scheduler.name, **found.scheduler.options)


def test_own_keys_and_option_sections_meet() -> None:
    found = plan(
        training={
            "compression": "topk",
            "compression_ratio": 0.05,
            "compression_options": {"half_values": True},
            "outer_optimizer": "delayed_nesterov",
            "outer_learning_rate": 0.5,
            "outer_options": {"delay": 8},
        },
        controller={"scheduler": "deferred_acceptance", "scheduler_options": {"switching_cost": 2.5}},
    )
    assert found.compression.options == {"ratio": 0.05, "half_values": True}
    assert found.outer.options == {"learning_rate": 0.5, "momentum": 0.9, "delay": 8}
    assert found.scheduler.name == "gale_shapley"  # the spelling of older run files
    assert (found.scheduler.options["switching_cost"], found.scheduler.options["priority_first"]) == (2.5, False)


def test_an_algorithm_keeps_its_own_defaults() -> None:
    found = plan(controller={"use_async_training": False}, training={"outer_optimizer": "nesterov"})
    assert found.outer.options == {"learning_rate": 0.7, "momentum": 0.9}


def test_synchronous_mode() -> None:
    found = plan(controller={"use_async_training": False})
    assert (found.asynchronous, found.overlap) == (False, False)
    assert staleness.create(found.staleness.name, **found.staleness.options).bound(0.1) == 0


def test_payload_bytes_are_the_codecs() -> None:
    assert payload_bytes(plan(training={"compression": "fp16"}).compression, 1000) == 2020


def test_the_overviews_example() -> None:
    text = """
controller: {use_async_training: true, max_staleness: 50, adaptive_staleness: true, use_zmq: true}
training: {compression: topk, compression_ratio: 0.01, aggregation_rule: bulyan, bulyan_f: 2}
model: {architecture: gpt_neo}
data: {kind: sat}
"""
    found = resolve(load(parse(text).content))
    assert found.purpose is Purpose.SERVE
    assert found.aggregation.minimum_nodes == 11
    assert found.aggregation.options == {"f": 2}


def test_a_bad_policy_does_not_hide_other_problems() -> None:
    found = refused(
        training={"warmup_tokens": 9_000_000}
        | {"schedule": "cosin", "precision": "bfloat61", "inner_optimizer": "adam"},
        controller={"scheduler": "fif"},
        exchange={"compression": "topkk"},
        aggregation={"options": {"F": 2}},
        staleness={"weighting": "inverse_sqr"},
        network={"profile": "cellula"},
    )
    expected = [
        r"training\.schedule: unknown schedule 'cosin'; did you mean 'cosine'\?",
        r"training\.precision: unknown precision 'bfloat61'; did you mean 'bfloat16'\?",
        r"staleness\.weighting: unknown staleness weighting 'inverse_sqr'; did you mean 'inverse_sqrt'\?",
        r"network\.profile: unknown link preset 'cellula'; did you mean 'cellular'\?",
        r"exchange\.compression: unknown codec 'topkk'; did you mean 'topk'\?",
        r"aggregation\.rule: aggregation rule 'mean' has no option 'F'",
        r"training\.inner_optimizer: unknown inner optimizer 'adam'; did you mean 'adamw'\?",
        r"controller\.scheduler: unknown scheduler 'fif'; did you mean 'fifo'\?",
        r"training\.warmup_tokens: is 9000000, but the run has 2000000 tokens",
    ]
    assert len(found) == len(expected)
    assert all(re.match(pattern, problem) for pattern, problem in zip(expected, found, strict=True))


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"aggregation": {"outer_optimizer": "nesterov"}}, "nesterov cannot be used in asynchronous mode"),
        (
            {"controller": {"use_async_training": False}, "aggregation": {"outer_optimizer": "delayed_nesterov"}},
            "delayed_nesterov cannot be used in synchronous mode",
        ),
        (
            {"aggregation": {"rule": "krum", "f": 1}},
            "krum with f=1 needs n >= 2f+3, here 5 nodes, but the run has 4 nodes (enough for "
            "trust.unguaranteed: true, which takes n >= 2f+2, here 4; the overview",
        ),
        (
            {"aggregation": {"rule": ["nnm", "trimmed_mean"], "trim_ratio": 0.1}},
            "nnm+trimmed_mean with trim_ratio=0.1 needs n >= 1/trim_ratio, here 10 nodes",
        ),
        (
            {"aggregation": {"rule": "trimmed_mean", "trim_ratio": 0.3, "buffer_size": 3}},
            "is 3, but trimmed_mean with trim_ratio=0.3 needs n >= 1/trim_ratio, here 4 contributions",
        ),
        (
            {"aggregation": {"rule": "mean", "f": 2}},
            "aggregation.f: is 2, but mean has no such bound",
        ),
        (
            {"aggregation": {"f": 2}},
            "clip_median+nnm+trimmed_mean with f=2 needs n >= 2f+1, here 5 nodes, but the run has 4 nodes (enough for "
            "aggregation.f: 1)",
        ),
        (
            {"aggregation": {"trim_ratio": 0.3}},
            "aggregation.trim_ratio: counts for a rule that trims, but aggregation.rule is auto; name one "
            "(trimmed_mean), or give aggregation.f: 0.3 instead",
        ),
        (
            {"aggregation": {"rule": "monna", "fallback": "mean"}},
            "'monna' keeps something from version to version, so that no version can be made by another rule",
        ),
        (
            {"aggregation": {"rule": "krum", "fallback": "nnm"}},
            "'nnm' only prepares updates",
        ),
        (
            {"aggregation": {"rule": "trimmed_mean", "f": 1, "trim_ratio": 0.3}},
            "has both f and trim_ratio=0.3",
        ),
        (
            {"aggregation": {"rule": "krum", "f": 0.1}},
            "krum with f=0.1 needs n >= 1/f and n >= 5, here 10 nodes, but the run has 4 nodes; list more workers, "
            "give aggregation.f as a lower whole number, or choose",
        ),
        (
            {"aggregation": {"rule": "trimmed_mean", "f": 0.3, "buffer_size": 3}},
            "aggregation.buffer_size: is 3, but trimmed_mean with f=0.3 needs n >= 1/f, here 4 contributions",
        ),
        (
            {"aggregation": {"rule": "mean", "f": 0.2}},
            "aggregation.f: is 0.2, but mean has no such bound",
        ),
        (
            {"aggregation": {"rule": "krum", "options": {"f": 0.5}}},
            "option 'f' is 0.5, but must be a whole number, or a share from 0 to below 0.5",
        ),
        ({"aggregation": {"rule": ["nnm"]}}, "only prepares updates; put a rule behind it"),
        ({"aggregation": {"rule": "krun"}}, "unknown aggregation rule 'krun'; did you mean 'krum'?"),
        (
            {"exchange": {"compression": "topk", "compression_ratio": 0.1, "compression_options": {"ratio": 0.2}}},
            "option 'ratio' is given twice, here and as exchange.compression_ratio; keep one",
        ),
        (
            {"exchange": {"compression": "int8", "compression_options": {"block": 1}}},
            "'block' is 1, but must be at least 8",
        ),
        (
            {"exchange": {"compression": "sparse_loco", "compression_options": {"chunk": 100}}},
            "option 'chunk' is 100, but must be one of 64, 128",
        ),
        (
            {"exchange": {"downlink_compression": "dct_topk"}},
            "exchange.downlink_compression: is dct_topk; use downlink_compression: fp16, bf16, int8, int4",
        ),
        (
            {"exchange": {"error_feedback_keep": 1.0, "error_feedback_decay": 0.95}},
            "exchange.error_feedback_keep: is 1; set error_feedback_decay: 1.0",
        ),
        (
            {"exchange": {"fragments": 4}},
            "exchange.fragments: is 4, but error_feedback_keep 0; set error_feedback: true",
        ),
        (
            {"exchange": {"fragments": 4, "error_feedback_keep": 1.0}, "aggregation": {"outer_optimizer": "adam"}},
            "aggregation.outer_optimizer: is adam with 4 fragments; use aggregation.outer_optimizer: sgd",
        ),
        (
            {"training": {"version_momentum": 0.5}, "exchange": {"fragments": 4, "error_feedback_keep": 1.0}},
            "training.version_momentum: is 0.5 with 4 fragments; set training.version_momentum: 0",
        ),
        ({"staleness": {"max": 3}}, "staleness.min: is 5, above staleness.max, which is 3"),
        (
            {"controller": {"use_zmq": False, "http_port": 0}},
            "controller.http_port: is 0, but with use_zmq: false HTTP has controller.port",
        ),
        (
            {"controller": {"port": 7001, "http_port": 7001}},
            "controller.http_port: is 7001, which is controller.port too; choose another http_port",
        ),
        ({"controller": {"heartbeat": 5.0}}, "controller.lease: is 1.2 s, but heartbeats are 5.0 s apart"),
        ({"training": {"tokens": 100}}, "training.tokens: is 100, but one task takes 20480"),
        ({"model": {}}, "model: has neither architecture nor path"),
        ({"model": {"architecture": "gpt2", "path": "x"}}, "model: has both architecture and path"),
        ({"model": {"path": "x", "config": {"a": 1}}}, "model.config: sets a beside path = x; leave them out"),
        (
            {"workers": [{"name": "a"}, {"name": "b"}, {"name": "a"}]},
            "workers[2].name: 'a' is the name of workers[0] too",
        ),
        ({"faults": [{"at": 0.5}]}, "faults[0]: has neither do nor kill nor join"),
        ({"faults": [{"at": 0.5, "kill": "w0", "join": {"name": "x"}}]}, "faults[0]: has both kill and join"),
        ({"faults": [{"kill": "w0"}]}, "faults[0]: has neither at nor at_seconds nor at_decisions; give one of"),
        ({"faults": [{"at": 0.5, "at_seconds": 3.0, "kill": "w0"}]}, "faults[0]: has at and at_seconds"),
        ({"faults": [{"at": 0.5, "do": "hang", "node": "w0"}]}, "faults[0].seconds: is missing, and hang needs it"),
        ({"faults": [{"at": 0.5, "do": "hang", "seconds": 1.0}]}, "faults[0].node: is missing, and hang needs it"),
        (
            {"faults": [{"at": 0.5, "do": "kil", "node": "w0"}]},
            "faults[0].do: unknown fault 'kil'; did you mean 'kill'?",
        ),
        (
            {"faults": [{"at": 0.5, "do": "hang", "node": "w0", "seconds": 1.0, "share": 0.5}]},
            "faults[0].share: is given, but hang takes node, nodes, seconds alone",
        ),
        (
            {"faults": [{"at": 0.5, "do": "kill", "node": "w0", "nodes": ["w1"]}]},
            "faults[0].nodes: is given beside another name",
        ),
        (
            {"faults": [{"at": 0.5, "do": "hang", "nodes": ["w0", "w1", "w0"], "seconds": 1.0}]},
            "faults[0].nodes: names 'w0' more than once; name each once",
        ),
        (
            {"faults": [{"at": 0.5, "do": "hang", "nodes": ["w0", "x"], "seconds": 1.0}]},
            "faults[0].nodes: 'x' is no worker at 0.5",
        ),
        ({"faults": [{"at_decisions": 5, "kill": "w0"}]}, "faults[0].at_decisions: is 5; give at or at_seconds"),
        (
            {"faults": [{"at_decisions": 5, "do": "full_disk", "seconds": 3.0}]},
            "faults[0].at_decisions: is 5; give at or at_seconds",
        ),
        ({"faults": [{"at_decisions": 5, "join": {"name": "x"}}]}, "faults[0].at_decisions: is 5; give at or at_se"),
        (
            {"faults": [{"at_seconds": 5.0, "do": "corrupt", "seconds": 3.0, "share": 0.1}]},
            "faults[0].do: corrupt cannot be played by `train`: `lab` or `simulate` can",
        ),
        (
            {"faults": [{"at_seconds": 5.0, "do": "clock_jump", "by_seconds": 3.0, "node": "w1"}]},
            "faults[0].node: is given, but `train` cannot play clock_jump on a node: `simulate` can",
        ),
        ({"faults": [{"at": 0.5, "kill": "x"}]}, "faults[0].kill: 'x' is no worker at 0.5 (running: w0, w1, w2, w3)"),
        (
            {"faults": [{"at": 0.5, "kill": "x"}, {"at": 0.6, "join": {"name": "x"}}]},
            "faults[0].kill: 'x' is no worker at 0.5",
        ),
        (
            {"faults": [{"at": 0.5, "kill": "w0"}, {"at": 0.2, "kill": "w0"}]},
            "faults[0].kill: 'w0' is dead at 0.5 (running: w1, w2, w3)",
        ),
        ({"faults": [{"at": 0.5, "join": {"name": "w0"}}]}, "faults[0].join: 'w0' is taken"),
        ({"data": {"kind": "sat", "variables": [5, 3]}}, "data: variables is [5, 3], but must be a range"),
        ({"data": {"kind": "sat", "variables": [2, 2]}}, "data: clause_lengths go to 3, but formulas may have 2"),
    ],
)
def test_each_impossible_combination_has_one_problem(sections: dict[str, Any], problem: str) -> None:
    found = refused(**sections)
    assert len(found) == 1
    assert problem in found[0]


def test_the_momentum_of_the_fleet_does_not_suit_muon() -> None:
    (found,) = warned(training={"inner_optimizer": "muon", "version_momentum": 1.0})
    assert "training.version_momentum: is 1 with inner_optimizer muon, which it does not help" in found
    assert "leave training.version_momentum 0" in found
    assert warned(training={"inner_optimizer": "muon"}) == []
    assert warned(training={"version_momentum": 1.0}) == []


def test_an_optimizer_that_needs_its_device_is_not_offloaded() -> None:
    workers = [{"name": "w0", "device": "cuda"}]
    (found,) = refused(training={"inner_optimizer": "muon", "offload_optimizer": True}, workers=workers)
    assert found == (
        "training.offload_optimizer: is true, but inner_optimizer is muon: a CPU takes seconds for the products of its "
        "matrices; choose adamw, adamw_8bit, lion or sgd, or leave training.offload_optimizer out"
    )
    assert warned(training={"offload_optimizer": True}, workers=workers) == []


def test_train_needs_workers() -> None:
    assert refused(Purpose.TRAIN, workers=[])[0].startswith("workers: is empty; list some, as in")
    assert plan(purpose=Purpose.SERVE, workers=[], controller={"host": "0.0.0.0"}).warnings == ()


def test_a_known_number_of_nodes_counts() -> None:
    rule = {"aggregation_rule": "bulyan", "aggregation_f": 2}
    assert plan(purpose=Purpose.SIMULATE, nodes=11, training=rule).aggregation.minimum_nodes == 11
    assert (
        "bulyan with f=2 needs n >= 4f+3, here 11 nodes, but the run has 10"
        in refused(Purpose.SIMULATE, 10, training=rule)[0]
    )


def test_a_share_of_attackers_sets_the_minimum_of_nodes_everywhere() -> None:
    rule = {"aggregation_rule": ["nnm", "bulyan"], "aggregation_f": 0.1}
    found = plan(purpose=Purpose.SIMULATE, nodes=12, training=rule)
    assert found.aggregation.minimum_nodes == 10
    assert [found.aggregation.withstood(count) for count in (9, 10, 19, 20)] == [None, 1, 1, 2]
    (warning,) = plan(purpose=Purpose.SERVE, workers=[], controller={"host": "0.0.0.0"}, training=rule).warnings
    assert "nnm+bulyan with f=0.1 pauses below 10 live nodes" in str(warning)


def test_a_share_that_the_rule_never_withstands_is_warned_of() -> None:
    def warnings(rule: Any, share: float) -> list[str]:
        given = {"rule": rule, "f": share}
        return [str(warning) for warning in plan(purpose=Purpose.SIMULATE, nodes=50, aggregation=given).warnings]

    for rule in ("bulyan", ["nnm", "bulyan"]):
        assert warnings(rule, 0.25) == []
        (warning,) = warnings(rule, 0.3)
        assert "aggregation.f: is 0.3, but" in warning
        assert "bulyan withstands less than 0.25; lower aggregation.f, or choose" in warning
    for rule in ("krum", "multi_krum", "trimmed_mean", ["nnm", "median"]):
        assert warnings(rule, 0.4999999) == []


def test_a_simulation_plays_what_nothing_else_can_on_the_nodes_that_it_has() -> None:
    dark = {"at_seconds": 5.0, "do": "partition", "nodes": ["w1", "node-00005"], "seconds": 3.0}
    assert len(plan(purpose=Purpose.SIMULATE, nodes=6, faults=[dark]).faults) == 1
    (problem,) = refused(Purpose.SIMULATE, 5, faults=[dark])
    assert problem.startswith("faults[0].nodes: 'node-00005' is no worker at 5.0 (running: node-00004, w0, w1, w2, w3)")
    jump = {"at": 0.1, "do": "clock_jump", "by_seconds": 9.0}
    (problem,) = refused(Purpose.LAB, faults=[jump | {"nodes": ["w0"]}])
    assert problem.startswith("faults[0].nodes: is given, but `lab` cannot play clock_jump on a node: `simulate` can")
    assert (
        len(plan(purpose=Purpose.LAB, faults=[jump, {"at": 0.2, "do": "kill_controller", "seconds": 1.0}]).faults) == 2
    )


def test_chance_has_a_seed_of_its_own_where_none_is_given() -> None:
    faults = [{"at": 0.5, "kill": "w0"}, {"at": 0.5, "kill": "w1", "seed": 4}]
    assert [fault.seed for fault in plan(run={"seed": 7}, faults=faults).faults] == [7, 4]


def test_a_faulty_fault_is_named_by_line_and_field() -> None:
    text = "model: {architecture: gpt2}\ndata: {kind: sat}\nworkers: [{name: a}]\nfaults:\n"
    document = parse(
        f"{text}- {{at: 0.5, kill: a}}\n- at_seconds: 5.0\n  do: hang\n  node: a\n  share: 1.0\n", "my.yaml"
    )
    with pytest.raises(RunFileError) as caught:
        resolve(build(document), document=document)
    assert "line 9: faults[1].share: is given, but hang takes" in str(caught.value)
    assert "line 6: faults[1].seconds: is missing" in str(caught.value)


@pytest.mark.parametrize("rule", ["krum", "bulyan", "trimmed_mean", "median", ["nnm", "median"]])
def test_the_minimum_is_the_rules_own(rule: str | list[str]) -> None:
    found = plan(purpose=Purpose.SIMULATE, nodes=100, training={"aggregation_rule": rule}).aggregation
    assert found.minimum_nodes == aggregation.minimum(rule, {})
    aggregation.require(rule, found.options, found.minimum_nodes)


def test_random_blocks_meet_in_synchronous_mode() -> None:
    training = {"compression": "random_blocks", "aggregation_rule": "median"}
    assert plan(training=training, controller={"use_async_training": False}).warnings == ()


@pytest.mark.parametrize(
    ("purpose", "sections", "warning"),
    [
        (
            None,
            {"exchange": {"compression": "topk"}, "aggregation": {"rule": "median"}},
            "median trims most of what topk sends",
        ),
        (
            None,
            {"exchange": {"compression": "random_blocks"}, "aggregation": {"rule": "median"}},
            "median trims most of what random_blocks sends",
        ),
        (
            None,
            {"exchange": {"compression": "topk"}, "aggregation": {"outer_optimizer": "delayed_nesterov"}},
            "delayed_nesterov on topk stalls; use aggregation.outer_optimizer: sgd",
        ),
        (
            None,
            {"exchange": {"compression": "topk", "error_feedback": False}},
            "exchange.error_feedback: is off with topk",
        ),
        (
            None,
            {"exchange": {"compression_ratio": 0.1}},
            "counts only with codecs that keep a share, but exchange.compression is none",
        ),
        (
            None,
            {"aggregation": {"rule": "mean", "trim_ratio": 0.1}},
            "counts only with trimmed_mean, but the rule is mean",
        ),
        (None, {"aggregation": {"outer_momentum": 0.5}}, "aggregation.outer_momentum: sgd has no momentum"),
        (None, {"training": {"momentum": 0.5}}, "counts only with muon or sgd, but inner_optimizer is adamw"),
        (None, {"aggregation": {"buffer_size": 9}}, "aggregation.buffer_size: is 9, but the run has 4 nodes"),
        (
            None,
            {"controller": {"use_async_training": False}, "aggregation": {"buffer_size": 2}},
            "aggregation.buffer_size: counts only in asynchronous mode",
        ),
        (
            None,
            {"faults": [{"at": 0.5, "kill": "w1"}], "aggregation": {"rule": "trimmed_mean"}},
            "faults[0]: leaves 3 workers, but trimmed_mean needs 4; let another join first",
        ),
        (
            Purpose.TRAIN,
            {"training": {"offload_optimizer": True}},
            "training.offload_optimizer: counts only for accelerators, but all workers have the device cpu",
        ),
        (Purpose.SERVE, {}, "controller.host: is 127.0.0.1, which only this machine can dial"),
        (
            Purpose.SERVE,
            {"controller": {"host": "10.0.0.1"}, "aggregation": {"rule": "krum"}},
            "krum pauses below 5 live nodes; invite at least as many",
        ),
        (
            Purpose.SERVE,
            {"controller": {"host": "10.0.0.1"}, "faults": [{"at": 0.5, "kill": "w0"}]},
            "faults: have no effect here",
        ),
    ],
)
def test_each_doubtful_combination_has_one_warning(
    purpose: Purpose | None, sections: dict[str, Any], warning: str
) -> None:
    found = warned(purpose, **sections)
    assert len(found) == 1
    assert warning in found[0]


def test_mixing_first_makes_topk_safe_to_trim() -> None:
    assert warned(training={"compression": "topk", "aggregation_rule": ["nnm", "median"]}) == []


def test_a_pre_aggregation_without_mixing_does_not_stop_the_warning() -> None:
    (warning,) = warned(training={"compression": "topk", "aggregation_rule": ["clip_median", "median"]})
    assert "trims most of what topk sends" in warning
    assert "clip_median in front" not in warning


def test_the_message_has_the_documents_lines() -> None:
    document = parse("model: {}\ndata:\n  {kind: text, files: [a]}\ncontroller:\n  lease: 0.1\n", "my.yaml")
    with pytest.raises(
        RunFileError, match=r"(?s)my\.yaml has 2 problems:\n  line 1: model: .*\n  line 5: controller\.lease"
    ):
        resolve(load(document.content), document=document)


def test_every_row_says_what_why_and_what_instead() -> None:
    assert len({row.what for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert all((row.what, row.why, row.instead))
        assert not row.instead.endswith(".")
