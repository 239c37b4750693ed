"""The end of a real run: prepared as `train` does it, with its model exported, its summary, and its views."""

from __future__ import annotations

import io
import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barnraise.assembly import addresses
from barnraise.assembly.ending import summarise
from barnraise.assembly.exporting import export_model
from barnraise.assembly.hosting import Host, open_host
from barnraise.assembly.preparing import prepare
from barnraise.assembly.voice import Voice
from barnraise.cli import console
from barnraise.cli.log_forms import form_of
from barnraise.cli.main import main
from barnraise.cli.summary import tell
from barnraise.cli.view import JsonView, LiveView, PlainView, voice_of
from barnraise.config.load import load
from barnraise.controller.state.state import Newest
from barnraise.core.errors import CorruptionError, DataError, InputError
from barnraise.ledger import (
    Change,
    Checkpoints,
    Ledger,
    NodeChanged,
    Noted,
    RunDirectory,
    VersionClosed,
    VersionMade,
    notes,
    seal,
)
from barnraise.plan.purpose import SERVE, TRAIN
from barnraise.plan.resolve import Plan, resolve
from barnraise.training.metrics.generation import greedy

from ..decisions import assigned, judged

JSON_KEYS = {
    "run_dir", "model_dir", "versions", "tokens", "seconds", "tokens_per_second", "first_loss", "final_loss",
    "bytes_up", "bytes_down", "snapshot_bytes", "accepted", "refused", "discarded", "workers",
    "idle", "conflicts", "prediction_error", "predicted_within", "seal", "signed", "audited", "unaudited",
    "market_events", "moves", "rematches", "stability", "nearly_stable", "blocking_density", "regret",
    "mean_stability", "mean_nearly_stable", "mean_blocking_density", "mean_regret",
    "stable_at_prices", "mean_stable_at_prices", "market", "no_market", "simulated", "privacy", "overhead",
}  # fmt: skip
MODEL = {"architecture": "gpt_neo", "config": {"hidden_size": 16, "num_layers": 2, "num_heads": 2}}
SAT = {
    "kind": "sat", "variables": [3, 3], "clause_lengths": [2, 3], "clause_ratio": 2.0, "context": 60, "examples": 60,
    "held_out": 30, "held_out_sets": [{"name": "search", "formulas": 5, "backtracking": {"at_least": 1}}],
}  # fmt: skip


def make(folder: Path, data: dict[str, Any]) -> tuple[RunDirectory, Plan]:
    plan = resolve(
        load({"run": {"name": "barn"}, "model": MODEL, "data": data, "workers": [{"name": "a"}]}), purpose=TRAIN
    )
    run = RunDirectory.create("barn", folder)
    prepare(plan, run, lambda text: None)
    return run, plan


@pytest.fixture(scope="module")
def sat_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, Plan]:
    """A SAT run that was prepared, evaluated once and stopped."""
    run, plan = make(tmp_path_factory.mktemp("sat"), SAT)
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ledger.commit(
            [
                Noted(0.0, notes.Started(digest="ab" * 32, run=run.path.name)),
                Noted(1.0, notes.Evaluated(version=0, loss=3.5, tokens=0)),
                Noted(2.0, notes.Finished(reason="SIGINT")),
            ],
            {},
        )
    return run, plan


@pytest.fixture
def text_run(tmp_path: Path) -> tuple[RunDirectory, Plan]:
    (tmp_path / "text.txt").write_text("a barn is raised by many hands.\n" * 200)
    return make(tmp_path, {"kind": "text", "files": [str(tmp_path / "text.txt")], "context": 32})


@pytest.fixture
def host(text_run: tuple[RunDirectory, Plan]) -> Iterator[Host]:
    """A controller that is ready to run, and has been told of a worker."""
    opened = open_host(*text_run, lambda text: None)
    opened.ledger.commit([NodeChanged(0.1, "a", "enrolled", key="a"), NodeChanged(0.2, "a", "joined", session=1)], {})
    yield opened
    opened.server.executor.close()
    opened.ledger.close()


@pytest.mark.parametrize("name", ["train-00000.bin", "held_out.bin", "meta.json"])
def test_a_damaged_dataset_is_noticed_before_workers_fetch_it(text_run: tuple[RunDirectory, Plan], name: str) -> None:
    path = text_run[0].data / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1 if name != "meta.json" else ord("\n") ^ ord(" ")  # sound JSON, but other bytes
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"{name} (does not match|is not that).*put .* back from a copy"):
        open_host(*text_run, lambda text: None)


def test_summary_for_people(sat_run: tuple[RunDirectory, Plan], capsys: pytest.CaptureFixture[str]) -> None:
    tell(summarise(*sat_run, Voice.of(console.note)), json=False)
    out = capsys.readouterr().out
    run, _ = sat_run
    assert "3.500 at version 0" in out
    assert "of its verdicts are right" in out
    assert "by unit propagation alone" in out
    assert re.search(r"on [0-9]+ held-out formulas that need search", out)
    assert re.search(r"held-out set +formulas +verdicts", out)
    assert "formula: (" in out
    assert re.search(r"checker: (accepted|refused)", out)
    for path in (run.model, run.report, run.ledger):
        assert str(path) in out
        assert path.exists()
    sealed = seal.read(run)
    assert sealed is not None
    assert sealed.digest in out
    report = run.report.read_text()
    assert "## Held-out formulas" in report
    assert re.search(r"On [0-9]+ held-out formulas that need search", report)
    assert "| held-out set | formulas | verdicts |" in report
    assert json.loads((run.path / "report/sat.json").read_text())["searched"]["formulas"] >= 5
    assert not (run.model / "backtracking.bin").exists()


def test_summary_for_programs_is_one_line(
    sat_run: tuple[RunDirectory, Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    tell(summarise(*sat_run, Voice.of(console.note)), json=True)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    told = json.loads(out)
    assert set(told) == JSON_KEYS | {"sat"}
    assert (told["versions"], told["tokens"], told["first_loss"], told["final_loss"]) == (0, 0, 3.5, 3.5)
    assert [one["formulas"] for one in told["sat"]["sets"]] == [30, 5]
    assert 0.5 <= told["sat"]["sets"][0]["majority"] <= 1.0
    assert told["sat"]["searched"]["formulas"] >= 5


def test_greedy_agrees_with_transformers(sat_run: tuple[RunDirectory, Plan]) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run, _ = sat_run
    export_model(run)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(run.model), AutoTokenizer.from_pretrained(run.model)
    prompts = torch.randint(3, len(tokenizer), (7, 9), generator=torch.Generator().manual_seed(0))
    eos, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    ours = greedy(model.eval(), prompts.tolist(), context=30, stops=(eos,))
    theirs = model.generate(
        prompts, attention_mask=torch.ones_like(prompts), max_length=30, do_sample=False, eos_token_id=eos,
        pad_token_id=pad,
    )  # fmt: skip
    assert ours == [row[: row.index(eos) + 1] if eos in row else row for row in theirs[:, 9:].tolist()]


def test_greedy_ends_when_every_row_has_ended(sat_run: tuple[RunDirectory, Plan]) -> None:
    from transformers import AutoModelForCausalLM

    run, _ = sat_run
    export_model(run)
    model = AutoModelForCausalLM.from_pretrained(run.model).eval()
    first = greedy(model, [[1, 5, 3]], context=30, stops=())[0]
    eos = first[4]
    cut = first.index(eos) + 1
    assert greedy(model, [[1, 5, 3]], context=30, stops=(eos,)) == [first[:cut]]
    assert greedy(model, [[1, 5, 3]], context=3, stops=(eos,)) == [[]]


def test_export_holds_the_checkpoint_and_the_tokenizer(text_run: tuple[RunDirectory, Plan], tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from barnraise.models.flat import FlatParameters

    run, _ = text_run
    Ledger(run.ledger).close()
    exported = export_model(run, tmp_path / "elsewhere")
    assert (exported.version, exported.newest, exported.folder) == (0, 0, tmp_path / "elsewhere")
    vector = FlatParameters(AutoModelForCausalLM.from_pretrained(exported.folder)).vector
    checkpoint = Checkpoints(run.checkpoints).load_latest().checkpoint
    assert checkpoint is not None
    assert torch.equal(vector, checkpoint.tensors("parameters")["parameters"])
    assert AutoTokenizer.from_pretrained(exported.folder).encode("barn") == list(b"barn")


def test_export_takes_the_average_of_versions_where_there_is_one(text_run: tuple[RunDirectory, Plan]) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from barnraise.models.flat import FlatParameters

    run, _ = text_run
    with Ledger(run.ledger) as ledger:
        newest = Checkpoints(run.checkpoints).load_latest().checkpoint
        assert newest is not None
        tensors = newest.tensors("parameters")
        tensors["average"] = tensors["parameters"] + 1.0
        Checkpoints(run.checkpoints).save(
            1,
            ledger_id=ledger.last_id,
            parameters_digest=newest.manifest.parameters_digest,
            state=b"{}",
            tensors={"parameters": tensors},
        )
    exported = export_model(run)
    vector = FlatParameters(AutoModelForCausalLM.from_pretrained(exported.folder)).vector
    assert torch.equal(vector, tensors["average"])


def test_a_run_with_a_damaged_ledger_still_has_the_model_of_its_checkpoint(
    text_run: tuple[RunDirectory, Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = text_run
    (run.path / addresses.FILE).write_bytes(msgspec.json.encode(addresses.Whereabouts("", "train")))
    Ledger(run.ledger, run.segments, run=run.path.name).close()
    with closing(sqlite3.connect(run.ledger)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages = connection.execute("SELECT rootpage FROM sqlite_master WHERE rootpage > 1").fetchall()
    content = bytearray(run.ledger.read_bytes())
    for (page,) in pages:
        content[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
    run.ledger.write_bytes(content)
    for command in ("finish", "export"):
        shutil.rmtree(run.model, ignore_errors=True)
        with pytest.raises(SystemExit) as ended:
            main([command, str(run.path)])
        assert ended.value.code == 0
        told = capsys.readouterr()
        assert "ledger.sqlite is damaged" in told.err
        assert told.out.splitlines()[0] == f"version 0 with 11,136 parameters is in {run.model}"
        assert (run.model / "model.safetensors").is_file()
    assert run.ledger.read_bytes() == content
    assert list(run.requests.iterdir()) == []
    assert main(["resume", str(run.path)]) == 1
    assert "barnraise finish" in capsys.readouterr().err


def test_a_payload_without_its_row_is_reported_before_it_is_dropped(text_run: tuple[RunDirectory, Plan]) -> None:
    run, _ = text_run
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ledger.commit(
            [
                NodeChanged(0.1, "a", Change.ENROLLED, key="a"),
                NodeChanged(0.2, "a", Change.JOINED, session=1),
                assigned(0.3, 7, "a"),
            ]
        )
        ledger.segments.append({7: b"the rows of this commit were not written any more"})
    warned: list[str] = []
    host = open_host(*text_run, warned.append)
    host.server.executor.close()
    host.ledger.close()
    assert any("(contributions 7)" in text and "ledger.sqlite-wal" in text for text in warned)


def test_export_command_refuses_what_is_not_there(
    text_run: tuple[RunDirectory, Plan], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = text_run
    Ledger(run.ledger).close()
    assert main(["export", str(run.path), "--version", "7"]) == 2
    assert "no checkpoint of version 7" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        export_model(run, tmp_path / "file")
    assert main(["export", str(tmp_path)]) == 2
    assert "is not a run directory" in capsys.readouterr().err


def test_export_does_not_use_a_damaged_checkpoint(text_run: tuple[RunDirectory, Plan]) -> None:
    run, _ = text_run
    Ledger(run.ledger).close()
    file = run.checkpoints / "v000000" / "parameters.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptionError, match="no checkpoint that can be used"):
        export_model(run)
    with pytest.raises(CorruptionError, match="do not match"):
        export_model(run, version=0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_live_view_draws_the_controller(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    view = voice_of(form_of("")).view()
    assert isinstance(view, LiveView)
    view.update(host)
    view.note("a note from outside")
    view.close()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert host.run.path.name in text
    assert "waiting for workers" in text
    assert "a joined" in text
    assert "a note from outside" in text
    assert screen.getvalue().endswith("\x1b[?25h"), "the cursor is shown again"


def test_plain_view_tells_news_once_and_figures_in_time(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    view = voice_of(form_of("")).view()
    assert isinstance(view, PlainView)
    view = PlainView(interval=0.0)
    view.update(host)
    view.update(host)
    view.close()
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines.count("a joined") == 1
    assert sum("version 0" in line for line in lines) == 2


def test_json_view_has_an_object_a_line(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    voice = voice_of(form_of("json"))
    voice.say("run directory x")
    voice.warn("hot")
    view = JsonView(interval=0.0)
    view.update(host)
    view.update(host)
    view.note("listening")
    view.close()
    captured = capsys.readouterr()
    assert captured.err == ""
    told = [json.loads(line) for line in captured.out.splitlines()]
    assert [one["event"] for one in told] == [
        "note", "warning", "happening", "progress", "progress", "note"
    ]  # fmt: skip
    assert told[2] | {"time": 0} == {
        "time": 0, "event": "happening", "seconds": 0.2, "kind": "joined", "node": "a", "text": "a joined"
    }  # fmt: skip
    assert (told[3]["version"], told[3]["waits_for"], told[3]["live"]) == (0, "waiting for workers", 0)


def test_plain_view_tells_f_of_the_newest_version(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """Nine are in the first version and four in the second: with a share f is another."""
    content = host.plan.run_file.model_dump(mode="json")
    content["aggregation"] |= {"rule": "trimmed_mean", "f": 0.25}
    host.plan = resolve(load(content | {"workers": []}), purpose=SERVE)
    view = PlainView(interval=0.0)
    view.update(host)
    for version, count in enumerate((9, 4), 1):
        numbers = range(10 * version, 10 * version + count)
        works = [work for n in numbers for work in (assigned(1.0, n, f"n{n}"), judged(2.0, n, f"n{n}"))]
        closed = VersionClosed(3.0, version, tuple(numbers), count, 400 * count, "full")
        made = VersionMade(3.5, version, "cd" * 32, 40)
        host.ledger.commit([*works, closed, made], dict.fromkeys(numbers, b"payload"))
        host.machine.state.newest = Newest(version, "cd" * 32, 3.5)
        view.update(host)
    view.close()
    lines = [line for line in capsys.readouterr().err.splitlines() if " live, K " in line]
    assert [", f 2 " in line for line in lines] == [False, True, False]
    assert [", f 1 " in line for line in lines] == [False, False, True]


def test_plain_view_does_not_repeat_the_past_of_a_resumed_run(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.resumed = True
    view = PlainView()
    view.update(host)
    host.ledger.commit([NodeChanged(0.3, "a", "left", "silent for 1.2 s")], {})
    view.update(host)
    view.close()
    assert capsys.readouterr().err.splitlines() == ["a is gone: silent for 1.2 s"]
