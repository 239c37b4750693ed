"""The checks of this machine before a run, with real files, sockets and folders of the test's own."""

from __future__ import annotations

import math
import os
import random
import shutil
import socket
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from barnraise import staleness
from barnraise.config import load
from barnraise.controller.fleet.speeds import Speeds
from barnraise.controller.state import events as ev
from barnraise.core.types import NodeProfile
from barnraise.ledger.segments import SEGMENT_BYTES
from barnraise.plan import Purpose, resolve
from barnraise.plan.estimate import LEAST_GROWTH, LEDGER_BYTES
from barnraise.plan.preflight import doubts, inspect, measure

from ...state_machine.engine import Engine, engine_settings

MODEL = {"architecture": "gpt2", "config": {"hidden_size": 32, "num_layers": 2, "num_heads": 2}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a working directory with a text file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "story.txt").write_text("once upon a time\n" * 100)
    return tmp_path


def content(**sections: Any) -> dict[str, Any]:
    base = {"model": MODEL, "data": {"kind": "text", "files": ["story.txt"]}, "workers": [{"name": "a"}]}
    return base | sections


def errors(purpose: Purpose = Purpose.TRAIN, **sections: Any) -> list[str]:
    return [str(problem) for problem in inspect(load(content(**sections)), purpose)[0]]


def text(*files: str, **keys: Any) -> dict[str, Any]:
    return {"kind": "text", "files": list(files), **keys}


def test_all_is_well() -> None:
    assert inspect(load(content()), Purpose.TRAIN) == ([], [])


@pytest.mark.parametrize("pattern", ["story.txt", ".", "*.txt", "**/*.txt", "st?ry.*"])
def test_data_is_found(pattern: str) -> None:
    assert errors(data=text(pattern)) == []


def test_data_that_is_not_there() -> None:
    found = errors(data=text("stori.txt", "story.txt", "*.md", "gone/x.txt"))
    assert [problem.partition(":")[0] for problem in found] == ["data.files[0]", "data.files[2]", "data.files[3]"]
    assert "no file matches 'stori.txt' in" in found[0]
    assert found[0].endswith("did you mean 'story.txt'?")
    assert "there is no folder gone" in found[2]


def test_data_that_is_empty(folder: Path) -> None:
    (folder / "empty.txt").touch()
    assert errors(data=text("empty.txt"))[0].startswith("data.files: hold 0 bytes, but two rows of 128 tokens need 256")
    assert errors(data=text("empty.txt", "story.txt")) == []


def test_data_that_is_too_little() -> None:
    assert "hold 1700 bytes, but two rows of 1000 tokens need 2000" in errors(data=text("story.txt", context=1000))[0]


def test_data_that_is_no_text(folder: Path) -> None:
    for number in range(3):
        (folder / f"x{number}.txt").write_bytes(b"%PDF-1.7\n" + bytes(1000))
    found = errors(data=text("story.txt", "x*.txt"))
    assert len(found) == 1
    assert found[0].startswith(
        "data.files[1]: 'x0.txt' is a PDF document, which would be trained on as if it were prose;"
    )
    assert found[0].endswith("(2 more files cannot be trained on either)")
    assert errors(data=text("story.txt")) == []


def test_records_without_a_text_and_plain_text_beside_records_are_named(folder: Path) -> None:
    (folder / "x.jsonl").write_text('{"text": "once upon a time"}\n' * 100)
    (folder / "y.csv").write_text("body,number\na,1\n")
    assert errors(data=text("x.jsonl")) == []
    assert errors(data=text("x.jsonl", "y.csv")) == [
        "data.files[1]: y.csv:2: has no field 'text' (there are: body, number); map it: `fields: {text: NAME}`"
    ]
    assert errors(data=text("x.jsonl", "y.csv", skip_bad=9)) == []
    (found,) = errors(data=text("story.txt", "x.jsonl"))
    assert found.startswith("data.files[0]: story.txt is plain text, which has no records; give JSONL, CSV, ")


def test_an_empty_file_that_is_named_is_warned_of(folder: Path) -> None:
    (folder / "empty.txt").touch()
    named, among = (inspect(load(content(data=text(*files))), Purpose.TRAIN) for files in (["empty.txt", "."], ["."]))
    assert [str(warning) for warning in named[1]] == ["data.files[0]: 'empty.txt' is empty"]
    assert named[0] == among[0] == among[1] == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_data_that_may_not_be_read(folder: Path) -> None:
    (folder / "story.txt").chmod(0)
    assert errors()[0].startswith("data.files[0]: 'story.txt' cannot be read (Permission denied); change its")


def test_data_that_links_to_itself(folder: Path) -> None:
    (folder / "self.txt").symlink_to(folder / "self.txt")
    (folder / "around").symlink_to(folder)
    (folder / "about").symlink_to(folder)
    assert errors(data=text("**/*.txt")) == []
    assert errors(data=text("self.txt")) == [
        "data.files[0]: 'self.txt' is a link that leads nowhere or back to itself; name a file"
    ]


@pytest.mark.parametrize(("name", "place"), [("gpt2", "gpt2"), ("EleutherAI/gpt-neo-125m", "gpt-neo-125m")])
def test_a_model_of_a_hub_is_no_folder(name: str, place: str) -> None:
    (found,) = errors(model={"path": name})
    assert found.startswith(f"model.path: there is no folder '{name}'; if that is a model of the Hugging Face hub")
    assert f"`hf download {name} --local-dir {place}`" in found
    assert "hf download" not in errors(model={"path": f"./{name}"})[0]
    assert "hf download" not in errors(model={"path": f"models/{name}/x"})[0]


def test_a_tokenizer_that_is_not_there(folder: Path) -> None:
    (folder / "tokenizer.json").touch()
    found = errors(data=text("story.txt", tokenizer="tokeniser.json"))
    assert found == [
        "data.tokenizer: there is no tokenizer at 'tokeniser.json'; did you mean 'tokenizer.json'?; "
        "give `bytes`, or a folder or file"
    ]


def test_a_model_folder_that_is_none(folder: Path) -> None:
    (folder / "empty").mkdir()
    assert "there is no folder 'nowhere'" in errors(model={"path": "nowhere"})[0]


def test_a_run_folder_that_cannot_be(folder: Path) -> None:
    assert errors(run={"dir": "a/b/c"}) == []
    assert not (folder / "a").exists()
    assert "story.txt is a file; name another" in errors(run={"dir": "story.txt/runs"})[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_run_folder_without_permission(folder: Path) -> None:
    (folder / "closed").mkdir(mode=0o500)
    assert "cannot be written to" in errors(run={"dir": "closed/runs"})[0]


def test_a_port_that_is_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        port = other.getsockname()[1]
        (taken,) = errors(controller={"port": port})
        assert taken.startswith(f"controller.port: {port} is taken by another program on 127.0.0.1; choose another")
        assert errors(Purpose.SIMULATE, controller={"port": port}) == []
    assert errors(controller={"port": port}) == []


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("192.0.2.1", "'192.0.2.1' is not an address of this machine"),
        ("no host.invalid", "is no address or host name that this machine knows"),
        ("", "must be text"),
    ],
)
def test_a_host_that_cannot_be_listened_on(host: str, message: str) -> None:
    if not host:
        with pytest.raises(Exception, match="must be text"):
            load(content(controller={"host": host}))
    else:
        assert message in errors(controller={"host": host})[0]


def test_the_estimate() -> None:
    workers = [{"name": "a", "speed": 2.0}, {"name": "b"}, {"name": "c", "speed": 0.5}]
    training = {"tokens": 200_000, "batch_size": 4, "local_steps": 10, "compression": "fp16"}
    plan = resolve(load(content(workers=workers, training=training)))
    cost, problems = measure(plan)
    assert problems == []
    assert cost is not None
    assert cost.sizes.parameters == 258 * 32 + 128 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32
    assert cost.sizes.snapshot_bytes == 4 * cost.sizes.parameters
    assert cost.sizes.contribution_bytes == 2 * cost.sizes.parameters + 20
    assert cost.contributions == 40  # 5120 tokens each
    assert cost.bytes_up == 40 * cost.sizes.contribution_bytes
    assert (cost.buffer_size, cost.versions) == (1, 40)
    assert cost.bytes_down == 3 * (cost.sizes.snapshot_bytes + 40 * cost.sizes.snapshot_bytes)
    assert cost.seconds is not None
    assert cost.seconds > 0
    checkpoints, shards = (2 + 1) * 2 * cost.sizes.snapshot_bytes, 2 * 1700
    others = checkpoints + 3 * cost.sizes.snapshot_bytes + shards + 40 * LEDGER_BYTES
    moments = 3 * 2 * cost.sizes.snapshot_bytes
    assert cost.disk_bytes == pytest.approx(others + moments + cost.bytes_up, abs=2000)


def test_the_sums_of_trustees_are_sent_too() -> None:
    masks = {"trustees": 4, "colluding": 1, "group": 2}
    changes = {
        "workers": [{"name": name, "data": {"files": [str(Path(__file__))]}} for name in "abcdefghi"],
        "data": {"kind": "site", "context": 32},
        "training": {"tokens": 200_000, "batch_size": 4, "local_steps": 10},
        "aggregation": {"rule": "trimmed_mean"},
        "evaluation": {"by": "sites"},
        "privacy": {"secure_aggregation": masks},
    }
    cost, problems = measure(resolve(load(content(**changes))))
    assert cost is not None, problems
    assert cost.buffer_size == 8
    assert cost.versions is not None
    sums = cost.bytes_up - cost.contributions * cost.sizes.contribution_bytes
    each = sums / cost.versions
    assert 0.9 < each / (2 * 4 * cost.sizes.contribution_bytes) <= 1.0, "two portions of the seeds, for four groups"


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_the_disk_holds_what_arrives_between_checkpoints(keep: int) -> None:
    def disk(**controller: Any) -> tuple[int, int]:
        training = {"tokens": 1_000_000_000, "batch_size": 4, "local_steps": 10}
        cost, _ = measure(resolve(load(content(training=training, controller=controller))))
        assert cost is not None
        return cost.disk_bytes, cost.bytes_up

    (bounded, all_bytes), (all_kept, _) = disk(keep_checkpoints=keep), disk(keep_checkpoints=keep, keep_payloads=True)
    assert bounded < all_bytes < all_kept
    segments = bounded - (all_kept - all_bytes)
    assert segments == pytest.approx(keep * LEAST_GROWTH + SEGMENT_BYTES, rel=0.01)


def test_a_disk_that_fills_late_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the ledger, and payloads that are kept, grow with the run: it may end, or its host act, before."""
    plan = resolve(load(content(training={"tokens": 10**12, "batch_size": 4, "local_steps": 2})))
    cost, problems = measure(plan)
    assert cost is not None
    assert problems == []
    early = cost.disk_bytes - cost.disk_growth_bytes
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(early + cost.disk_growth_bytes // 4))
    (found,) = doubts(plan, cost)
    assert "the disk is full after about 25% of the tokens" in str(found)
    assert measure(plan)[1] == []
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(cost.disk_bytes))
    assert not list(doubts(plan, cost))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(early - 1))
    assert not list(doubts(plan, cost))
    assert measure(plan)[1] != []


def test_audits_of_long_tasks_of_deep_models() -> None:
    """Rounding leads honest nodes apart there, and the run file's reader is told so beforehand."""

    def found(layers: int, steps: int, **training: Any) -> list[str]:
        model = {"architecture": "gpt2", "config": {"hidden_size": 96, "num_layers": layers, "num_heads": 2}}
        section = {"tasks": "stateless", "audits": 0.05, "local_steps": steps} | training
        plan = resolve(load(content(model=model, training=section)), purpose=Purpose.TRAIN)
        cost, problems = measure(plan)
        assert cost is not None
        assert problems == []
        return [str(doubt) for doubt in doubts(plan, cost)]

    (text,) = found(3, 100)
    assert text.startswith("training.local_steps: is 100, in a model of 3 layers: local steps amplify rounding")
    assert "set local_steps to 30 at most" in text
    assert found(1, 100) != []
    assert "set local_steps to 1 at most" in found(200, 1)[0]
    assert found(3, 30) == found(1, 90) == found(3, 100, audits=0.0) == []
    assert found(3, 100, tasks="stateful") == [], "nobody is judged, as another warning says"


@pytest.mark.parametrize(
    ("rule", "vectors"),
    [
        ("median", 0),
        ("centered_clipping", 1),
        (["worker_momentum", "median"], 3),
        (["worker_momentum", "centered_clipping"], 4),
    ],
)
def test_the_estimate_includes_the_memory_of_the_aggregation_rule(rule: Any, vectors: int) -> None:
    workers = [{"name": name} for name in "abc"]
    plain, cost = (
        measure(resolve(load(content(workers=workers, training={"aggregation_rule": each}))))[0]
        for each in ("mean", rule)
    )
    assert plain is not None
    assert cost is not None
    assert cost.controller_memory_bytes - plain.controller_memory_bytes == vectors * cost.sizes.snapshot_bytes
    assert (cost.disk_bytes > plain.disk_bytes) == bool(vectors)


@pytest.mark.parametrize(
    ("controller", "buffer_size"),
    [
        ({"use_async_training": False}, 3),
        ({"buffer_size": 2}, 2),
        ({"buffer_size": 9}, 3),
        ({"max_staleness": 4, "min_staleness": 1, "adaptive_staleness": False}, 3),
        ({"max_staleness": 50}, 1),
    ],
)
def test_the_expected_buffer(controller: dict[str, Any], buffer_size: int) -> None:
    workers = [{"name": "a", "speed": 2.0}, {"name": "b"}, {"name": "c", "speed": 0.5}]
    cost, _ = measure(resolve(load(content(workers=workers, controller=controller))))
    assert cost is not None
    assert cost.buffer_size == buffer_size


@pytest.mark.parametrize("seed", range(20))
def test_the_expected_buffer_is_the_controllers(seed: int) -> None:
    """At the speeds that the run file gives, `check` and the controller find the same K."""
    chance = random.Random(seed)
    speeds = [round(math.exp(chance.uniform(-3, 3)), 3) for _ in range(chance.randint(2, 9))]
    limits = {"max_staleness": chance.randint(5, 60), "min_staleness": chance.randint(0, 5)}
    workers = [{"name": f"w{index}", "speed": speed} for index, speed in enumerate(speeds)]
    cost, _ = measure(resolve(load(content(workers=workers, controller=limits))))
    engine = Engine(engine_settings(staleness=staleness.create("adaptive", **limits)))
    for index, speed in enumerate(speeds):
        engine.hello(f"w{index}", profile=NodeProfile(1000.0 * speed))
    engine.machine.parts[Speeds].at = -1
    engine.handle(ev.Tick())
    assert cost is not None
    assert engine.state.buffer.size == cost.buffer_size


def test_nothing_is_guessed_about_workers_elsewhere() -> None:
    cost, problems = measure(resolve(load(content()), purpose=Purpose.SERVE))
    assert problems == []
    assert cost is not None
    assert (cost.buffer_size, cost.versions, cost.bytes_down, cost.seconds) == (None, None, None, None)
    assert cost.contributions > 0


def test_a_model_too_large_for_this_machine() -> None:
    huge = {"architecture": "llama", "config": {"hidden_size": 16384, "num_layers": 126, "num_heads": 128}}
    cost, problems = measure(resolve(load(content(model=huge))))
    assert cost is not None
    assert cost.sizes.parameters > 4e11
    assert str(problems[0]).startswith("model: the controller and 1 local worker need about")
    assert "take a smaller model" in str(problems[0])
    assert any(str(problem).startswith("run.dir: the run takes about") for problem in problems)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"architecture": "gpt22"}, "model: unknown model architecture 'gpt22'; did you mean 'gpt2'?"),
        (
            {"architecture": "gpt2", "config": {"hiden_size": 3}},
            "no config key 'hiden_size'; did you mean 'hidden_size'?",
        ),
        ({"architecture": "gpt2", "config": {"hidden_size": 30, "num_heads": 4}}, "must be a multiple of the 4"),
        ({"architecture": "gpt2", "config": {"n_positions": 16}}, "the data has rows of 128 tokens"),
    ],
)
def test_a_model_that_cannot_be(model: dict[str, Any], message: str) -> None:
    cost, problems = measure(resolve(load(content(model=model))))
    assert cost is None
    assert message in str(problems[0])


def test_a_tokenizer_that_cannot_be_read() -> None:
    cost, problems = measure(resolve(load(content(data=text("story.txt", tokenizer="story.txt")))))
    assert cost is None
    assert "data: story.txt is not a tokenizer" in str(problems[0])


@pytest.mark.parametrize("device", ["cuda:999", "xpu:999"])
def test_a_device_that_this_machine_lacks(device: str) -> None:
    workers = [{"name": "a"}, {"name": "b", "device": device}]
    (found,) = errors(workers=workers)
    assert found.startswith(f"workers[1].device: is {device}, but t")
    assert found.endswith("; use cpu")
    assert errors(Purpose.SIMULATE, workers=workers) == []


@pytest.mark.parametrize(("offloaded", "kept"), [(False, 4), (True, 2)])
def test_an_offloaded_optimizer_moves_from_the_device_to_main_memory(offloaded: bool, kept: int) -> None:
    cost, _ = measure(resolve(load(content(training={"offload_optimizer": offloaded})), purpose=Purpose.SERVE))
    own, _ = measure(resolve(load(content()), purpose=Purpose.SERVE))
    assert cost is not None
    assert own is not None
    size, before, after = 4 * cost.sizes.trained, own.accelerated, cost.accelerated
    assert before.accelerator_memory_bytes - after.accelerator_memory_bytes == (4 - kept) * size
    assert after.accelerator_host_bytes - before.accelerator_host_bytes == offloaded * 4 * size
    assert cost.worker_memory_bytes == own.worker_memory_bytes, "a CPU's moments are there anyway"
    assert cost.as_dict()["accelerator_memory_bytes"] == after.accelerator_memory_bytes


@pytest.mark.parametrize(("local_steps", "warned"), [(600, True), (300, False)])
def test_few_rows_for_long_tasks(folder: Path, local_steps: int, warned: bool) -> None:
    (folder / "short.txt").write_text("a" * 80)
    run_file = load(
        content(data=text("short.txt", context=8, held_out=0.5), training={"local_steps": local_steps, "batch_size": 4})
    )
    errors, warnings = inspect(run_file, Purpose.TRAIN)
    assert errors == []
    expected = (
        "training.local_steps: is 600, but the data has about 5 rows, and a task goes around them at most 256 times"
    )
    assert [str(warning).startswith(expected) for warning in warnings] == [True] * warned
    assert all("it will be of about 320 steps" in str(warning) for warning in warnings)


def test_forked_workers_share_what_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def problems(workers: int) -> list[str]:
        listed = [{"name": f"w{number}"} for number in range(workers)]
        plan = resolve(load(content(workers=listed)), purpose=Purpose.TRAIN)
        return [problem.message for problem in measure(plan)[1]]

    monkeypatch.setattr("barnraise.models.memory.available_bytes", lambda: 24 << 30)
    assert problems(64) == []
    assert any("the controller and 1000 local workers need" in text for text in problems(1000))
