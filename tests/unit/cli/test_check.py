"""`barnraise check`, and what the command line as a whole promises: exit codes, messages, lazy commands."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from barnraise import __version__
from barnraise.cli import console, main
from barnraise.core import units

RUN = """
run: {name: tiny}
model: {architecture: gpt2, config: {hidden_size: 32, num_layers: 2, num_heads: 2}}
data: {kind: text, files: [story.txt], context: 32}
workers: [{name: a}, {name: b}]
training: {tokens: 100_000, batch_size: 4}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a working directory with a run file and its data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "story.txt").write_text("once upon a time\n" * 100)
    (tmp_path / "run.yaml").write_text(RUN)
    return tmp_path


def run(*arguments: str) -> int:
    """Return the exit code of the command line in this process."""
    try:
        return main.main(list(arguments))
    except SystemExit as exit:
        return int(exit.code or 0)


def test_a_sound_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "run.yaml") == 0
    out, err = capsys.readouterr()
    assert out.startswith("run.yaml is sound: train, asynchronous\n  model          gpt2, ")
    assert "contributions  40 of 2,560 tokens" in out
    assert re.search(r"leases         a node that dies is missed after [0-9.]+ s among \d+ nodes?\n", out)
    assert re.search(
        r"link           R [0-9.e+]+: [0-9.]+ [GT]FLOP/s a worker, 10 Mbit/s up \(no link is given\), 128 tok", out
    )
    assert err == ""


def test_the_cost_of_the_loss_gate_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run.yaml").write_text(RUN.replace("batch_size: 4", "batch_size: 4, loss_gate: 30"))
    assert run("check", "run.yaml") == 0
    assert "to train on 3,200 tokens" in capsys.readouterr().out  # 10/3 of 30 rows of 32 tokens


def test_faults_are_checked_for_the_command_that_is_to_play_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run.yaml").write_text(
        RUN + "faults:\n- {at: 0.5, kill: a}\n- at_seconds: 5\n  do: corrupt\n  share: 0.1\n  seconds: 3\n"
    )
    assert run("check", "run.yaml") == 2
    assert "run.yaml:10: faults[1].do: corrupt cannot be played by `train`: `lab` or" in capsys.readouterr().err
    assert run("check", "run.yaml", "--lab") == 0
    assert capsys.readouterr().out.startswith("run.yaml is sound: lab, asynchronous")
    assert run("check", "run.yaml", "--simulate") == 0
    assert run("check", "run.yaml", "--lab", "--serve") == 2
    assert "one command at a time" in capsys.readouterr().err


@pytest.mark.parametrize("nodes", [[], ["--nodes", "2"]])
def test_rows_that_no_machine_has_the_memory_for_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], nodes: list[str]
) -> None:
    machines = "workers: [{name: a, memory: 120_000_000}, {name: b, memory: 500_000_000}]"
    long = RUN.replace("context: 32", "context: [64, 128, 4096]").replace("workers: [{name: a}, {name: b}]", machines)
    (folder / "story.txt").write_text("once upon a time\n" * 2000)
    (folder / "run.yaml").write_text(long)
    command = ["simulate", "run.yaml", *nodes] if nodes else ["check", "run.yaml", "--simulate"]
    assert run(*command) == 2
    said = capsys.readouterr().err
    assert "training on rows of 4096 tokens needs " in said
    assert "but b, the largest machine, has 500 MB; take a smaller model or data.context" in said
    if not nodes:
        assert "run.yaml:4: data.context: " in said
        (folder / "run.yaml").write_text(long.replace("500_000_000", "500_000_000_000"))
        assert run(*command) == 0


def test_a_sound_file_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "run.yaml", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["ok"], result["problems"], result["warnings"]) == (True, [], [])
    assert result["estimate"]["contributions"] == 40


def test_an_accelerators_memory_is_told_where_there_may_be_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("check", "run.yaml") == 0
    assert "accelerator" not in capsys.readouterr().out
    (folder / "run.yaml").write_text(RUN.replace("batch_size: 4", "batch_size: 4, offload_optimizer: true"))
    assert run("check", "run.yaml", "--serve") == 0
    assert re.search(r"accelerator +[\d.]+ [kMG]B of its memory with one row at a time, and ", capsys.readouterr().out)


def test_a_warning_has_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run.yaml").write_text(RUN + "network: {}\ncontroller:\n  buffer_size: 7\n")
    assert run("check", "run.yaml") == 0
    out, err = capsys.readouterr()
    assert out.startswith("run.yaml is sound")
    assert err.startswith(
        "warning: run.yaml:9: aggregation.buffer_size (here controller.buffer_size): is 7, but the run has 2 nodes"
    )


def test_scores_need_the_model_where_nothing_else_does(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scored = RUN.replace("batch_size: 4", "batch_size: 4}\ntrust: {scores: 0.1") + "evaluation: {by: %s}\n"
    for measures, warned in (("workers", True), ("controller", False)):
        (folder / "run.yaml").write_text(scored % measures)
        assert run("check", "run.yaml") == 0
        assert ("trust.scores: is 0.1" in capsys.readouterr().err) == warned
    (folder / "run.yaml").write_text(RUN.replace("batch_size: 4", "batch_size: 4}\ntrust: {scores: 1.5"))
    assert run("check", "run.yaml") == 2
    assert "trust.scores: is 1.5" in capsys.readouterr().err


def test_strangers_that_measure_the_loss_are_warned_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run.yaml").write_text(RUN + "evaluation: {by: workers}\n")
    for serve, warned in ([], False), (["--serve"], True):
        assert run("check", "run.yaml", *serve) == 0
        assert ("evaluation.by: is workers, and the loss is what two owners" in capsys.readouterr().err) == warned


def test_check_prints_how_contributions_are_checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "run.yaml") == 0
    assert "checked" not in capsys.readouterr().out, "workers are the host's own"
    assert run("check", "run.yaml", "--serve") == 0
    assert "no contributions: trust.scores: 0.2, or training.tasks: stateless" in capsys.readouterr().out
    found = {}
    for name in ("stateful", "stateless"):
        told = f"batch_size: 4, tasks: {name}}}\ntrust: {{audits: 0.05, scores: 0.2"
        (folder / "run.yaml").write_text(RUN.replace("batch_size: 4", told))
        assert run("check", "run.yaml", "--serve") == 0
        found[name] = "".join(capsys.readouterr())
    assert "trust.audits: is 0.05, but training.tasks is stateful" in found["stateful"]
    assert "checked        0.2 of the contributions by their effect" in found["stateful"]
    assert "audits: is" not in found["stateless"]
    assert "checked        0.05 of the contributions by another node that repeats them, 0.2" in found["stateless"]


def test_check_tells_the_size_of_a_masked_update_and_that_no_update_is_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    masked = RUN.replace("batch_size: 4", "batch_size: 4, compression: none")
    (folder / "run.yaml").write_text(masked + "privacy: {secure_aggregation: {trustees: 4, value_bits: 12}}\n")
    assert run("check", "run.yaml", "--serve") == 0
    out = capsys.readouterr().out
    assert re.search(r"of [\d,]+ tokens, [\d.]+ kB each \(masked, 14 bits a value\)", out)
    assert "no contributions: single updates are masked" in out


def test_check_tells_the_size_and_the_row_of_an_encrypted_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapter = RUN.replace("batch_size: 4", "batch_size: 4, compression: none, adapter: {rank: 2, train: b_only}")
    section = f"privacy: {{homomorphic_encryption: {{key: club/{'0a' * 16}, nodes: 2}}}}\nevaluation: {{by: workers}}\n"
    (folder / "run.yaml").write_text(adapter + section)
    assert run("check", "run.yaml", "--serve") == 0
    out, err = capsys.readouterr()
    assert re.search(r"of [\d,]+ tokens, [\d.]+ kB each \(encrypted\)", out)
    assert "no contributions: single updates are masked, encrypted or noised" in out
    assert "privacy        homomorphic encryption. curious host: " in out
    assert "what two owners, or one alone, say it is" not in err, "all workers have the key, and are trusted"


def test_other_names_of_keys_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for controller, told in (("max_staleness: 7, gradient_clip_norm: 1", "2 keys"), ("lease: 1.3", "")):
        (folder / "run.yaml").write_text(RUN + f"controller: {{{controller}}}\n")
        assert run("check", "run.yaml") == 0
        out = capsys.readouterr().out
        assert (f"  names          {told} under an old name or another spelling: " in out) == bool(told)
        assert ("check run.yaml --upgrade prints the file with the present ones" in out) == bool(told)


def test_audits_take_nodes_out_of_rounds_that_wait(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rounds = (
        RUN.replace("batch_size: 4", "batch_size: 4}\ntrust: {audits: 0.1") + "controller: {use_async_training: %s}\n"
    )
    for asynchronous, warned in (("true", False), ("false", True)):
        (folder / "run.yaml").write_text(rounds % asynchronous)
        assert run("check", "run.yaml") == 0
        assert ("is 0.1: in the mean a round lacks" in capsys.readouterr().err) == warned
    (folder / "run.yaml").write_text(RUN.replace("batch_size: 4", "batch_size: 4}\ntrust: {audits: 0.7"))
    assert run("check", "run.yaml") == 2
    assert "trust.audits: is 0.7" in capsys.readouterr().err


def test_check_for_serve(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "run.yaml", "--serve") == 0
    out, err = capsys.readouterr()
    assert out.startswith("run.yaml is sound: serve, asynchronous")
    assert "how many depends on the nodes that join" in out
    assert "controller.host" in err


def test_a_bad_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run.yaml").write_text(RUN + "controller: {max_stalenes: 3, port: 99999}\n")
    assert run("check", "run.yaml") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: run.yaml has 2 problems:\n  line 7: controller.port: is 99999")
    assert "unknown key; did you mean 'staleness.max'?" in err


ROBUST = RUN.replace("batch_size: 4", "batch_size: 4}\naggregation: {rule: bulyan, f: %s")


def test_a_share_of_attackers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sound where enough work; refused by what it needs; warned of where the rule never withstands it."""
    enough = ROBUST.replace("{name: b}", ", ".join(f"{{name: {node}}}" for node in "bcdefg"))
    (folder / "run.yaml").write_text(enough % 0.2)
    assert run("check", "run.yaml") == 0
    assert "aggregation.f" not in capsys.readouterr().err
    (folder / "run.yaml").write_text(enough % 0.3)
    assert run("check", "run.yaml") == 0
    assert "aggregation.f: is 0.3, but bulyan withstands less than 0.25" in " ".join(capsys.readouterr().err.split())
    (folder / "run.yaml").write_text(ROBUST % 0.2)
    assert run("check", "run.yaml") == 2
    expected = (
        "run.yaml:7: aggregation.rule: bulyan with f=0.2 needs n >= 1/f and n >= 7, here 7 nodes, but the run "
        "has 2 nodes; list more workers, give aggregation.f as a lower whole number, or choose a rule that needs fewer"
    )
    assert expected in " ".join(capsys.readouterr().err.split())
    (folder / "run.yaml").write_text(ROBUST % 0.5)
    assert run("check", "run.yaml") == 2
    expected = (
        "run.yaml:7: aggregation.f: is 0.5, but must be a whole number from 0 to 1000000, or a share from 0 "
        "to below 0.5"
    )
    assert expected in " ".join(capsys.readouterr().err.split())


def test_where_the_overview_judges_krum_otherwise(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nine = RUN.replace("{name: b}", ", ".join(f"{{name: {node}}}" for node in "bcdefghi"))
    for f, told in ((3, True), (2, False)):
        (folder / "run.yaml").write_text(
            nine.replace("batch_size: 4", f"batch_size: 4, aggregation_rule: krum, krum_f: {f}")
        )
        assert run("check", "run.yaml") == 0
        line = "overview       the overview's f < n/3 does not allow f=3 of 9, n >= 2f+3 does"
        assert (line in capsys.readouterr().out) == told


def test_how_likely_a_buffer_holds_too_many_liars(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nine = RUN.replace("{name: b}", ", ".join(f"{{name: {node}}}" for node in "bcdefghi"))
    rule = "batch_size: 4, aggregation_rule: [nnm, trimmed_mean], aggregation_f: auto, believed_liars: %s"
    for share, line in ((0.2, "K 7, f 2: more lie with probability 0\n"), (0.4, "; no K reaches 1e-06\n")):
        (folder / "run.yaml").write_text(nine.replace("batch_size: 4", rule % share))
        assert run("check", "run.yaml") == 0
        assert line in capsys.readouterr().out


def test_a_bad_file_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run.yaml").write_text(RUN.replace("story.txt", "gone.txt"))
    assert run("check", "run.yaml", "--json") == 2
    out, err = capsys.readouterr()
    assert err == ""
    result = json.loads(out)
    assert not result["ok"]
    assert [(row["key"], row["line"]) for row in result["problems"]] == [("data.files[0]", 4)]


def test_a_missing_file_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "rum.yaml", "--json") == 2
    assert "did you mean run.yaml?" in json.loads(capsys.readouterr().out)["problems"][0]["message"]


def test_check_lists_missing_files_together_with_invalid_keys(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run.yaml").write_text(RUN.replace("story.txt", "gone.txt") + "controller: {lease: 0.1}\n")
    assert run("check", "run.yaml") == 2
    err = capsys.readouterr().err
    assert "has 2 problems" in err
    assert "data.files[0]" in err
    assert "controller.lease" in err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"barnraise {__version__}\n"


def test_help_lists_every_command_without_loading_one(capsys: pytest.CaptureFixture[str]) -> None:
    loaded = set(sys.modules)
    assert run("--help") == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in main.COMMANDS)
    assert not {module for module, _ in main.COMMANDS.values()} & (set(sys.modules) - loaded)


@pytest.mark.parametrize("name", ["init", "check", "doctor"])
def test_help_of_a_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name, "--help") == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Usage: barnraise {name} ")
    first_sentence = main.COMMANDS[name][1].rstrip(".")
    assert first_sentence in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chek"], "No such command 'chek'. Did you mean 'check'?"),
        (["check"], "Missing argument"),
        (["check", "run.yaml", "--jsn"], "No such option"),
        (["check", "run.yaml", "extra"], "extra"),
    ],
)
def test_usage_errors(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 2
    assert message in capsys.readouterr().err


def command(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Make a command `tried` with this body."""
    (folder / "tried_command.py").write_text(f"def tried() -> None:\n    {body}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "tried_command", raising=False)
    monkeypatch.setitem(main.COMMANDS, "tried", ("tried_command", "A command."))


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("pass", 0, ""),
        ("raise KeyboardInterrupt", 130, ""),
        ("import typer; raise typer.Exit(7)", 7, ""),
        ("from barnraise.core.errors import DataError as E; raise E('no')", 2, "error: no\n"),
        ("from barnraise.core.errors import RunFailedError as E; raise E('it broke')", 1, "error: it broke\n"),
        (
            "1 / 0",
            1,
            "error: ZeroDivisionError: division by zero\nThis should not have happened; BARNRAISE_TRACEBACK=1 ",
        ),
        ("raise SystemExit(3)", 3, ""),
    ],
)
def test_how_a_command_ends(
    body: str,
    code: int,
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command(folder, monkeypatch, body)
    monkeypatch.delenv(main.TRACEBACK, raising=False)
    assert run("tried") == code
    err = capsys.readouterr().err
    assert err.startswith(message)
    assert bool(err) == bool(message)
    assert "Traceback" not in err


def test_a_traceback_when_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command(folder, monkeypatch, "1 / 0")
    monkeypatch.setenv(main.TRACEBACK, "1")
    with pytest.raises(ZeroDivisionError):
        run("tried")


def test_a_module_may_hold_a_group(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    body = "import typer\ntried = typer.Typer()\n@tried.command()\ndef one():\n    print('1')\n"
    command(folder, monkeypatch, "pass")
    (folder / "tried_command.py").write_text(body + "@tried.command()\ndef two():\n    print('2')\n")
    assert run("tried", "two") == 0
    assert capsys.readouterr().out == "2\n"


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    console.emit_json({"a": [float("nan"), float("inf"), 1.5], "b": ("x", None)})
    assert capsys.readouterr().out == '{"a": [null, null, 1.5], "b": ["x", null]}\n'


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (3599.9, "1 h"), (86_399, "23 h 59 min"), (float("inf"), "unknown")],
)
def test_durations(seconds: float, text: str) -> None:
    assert units.duration_text(seconds) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"), [(0, "0 B"), (999, "999 B"), (999.6, "1.0 kB"), (999_600, "1.0 MB"), (5e18, "5000 PB")]
)
def test_sizes(num_bytes: float, text: str) -> None:
    assert units.bytes_text(num_bytes) == text
