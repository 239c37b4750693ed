"""The problems by name: built in, in files, of installed packages; what a machine without one is told."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.problems import Line
from torch import nn

from barnraise.core.errors import InputError, ModelError, OptionError, UnknownNameError
from barnraise.models import memory, problems
from barnraise.models.build import build
from barnraise.models.config import check, describe, usual_problem
from barnraise.models.exchange.record import Exchange
from barnraise.models.problems import CATALOG, FILES, PROBLEM, entry_of_class, named, register

FILE = """
from dataclasses import dataclass
import barnraise
from torch import nn

@dataclass
class Plane(barnraise.Problem):
    '''A plane.'''
    sides: int = 2
    columns = (barnraise.RowColumn(name="x", dtype="float32"),)
    def build(self):
        return nn.Linear(self.sides, 1)
    def loss(self, module, batch):
        return module(batch["x"]).sum(), 1
"""


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CATALOG, "entries", dict(CATALOG.entries))
    monkeypatch.delenv(FILES, raising=False)


def plane(folder: Path, monkeypatch: pytest.MonkeyPatch, content: str = FILE) -> Path:
    (folder / "plane.py").write_text(content)
    monkeypatch.setenv(FILES, f"plane={folder / 'plane.py'}:Plane")
    return folder / "plane.py"


def test_a_problem_in_a_file_is_described_built_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plane(tmp_path, monkeypatch)
    config = describe({"problem": "plane", "problem_options": {"sides": 5}}, 1, 1)
    assert config["model_type"] == "plane"
    told = config[PROBLEM]
    assert (told["name"], told["options"], told["package"]) == ("plane", {"sides": 5}, "plane.py")
    assert memory.model_size(config) == 6
    assert [leaf.name for leaf in Exchange.of(config).layout.leaves] == ["weight", "bias"]
    one, again, other = (build(config, seed).weight for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_a_machine_without_the_problem_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plane(tmp_path, monkeypatch)
    config = describe({"problem": "plane"}, 1, 1)
    digest = config[PROBLEM]["version"]
    monkeypatch.delenv(FILES)
    del CATALOG.entries["plane"]
    with pytest.raises(ModelError, match=rf"'plane' is not installed here; the run needs plane.py .* {digest}"):
        check(config)
    installed = config | {PROBLEM: config[PROBLEM] | {"package": "planes", "version": "1.2"}}
    with pytest.raises(ModelError, match=r"the run needs the package planes 1.2: pip install 'planes==1.2'"):
        check(installed)
    path.write_text(FILE + "# another\n")
    monkeypatch.setenv(FILES, f"plane={path}:Plane")
    with pytest.raises(ModelError, match=r"that of plane.py .* here; the run needs plane.py with the digest"):
        check(config)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("plane", "the problem of the model is plane"),
        ({"name": 3}, "the problem of the model is"),
        ({"name": "masked_lm", "options": 3}, "the problem of the model is"),
        ({"name": "masked_lm", "options": {"share": 2.0}}, "option 'share' is 2.0"),
        ({"name": "masked_lm", "options": {"shares": 0.1}}, "has no option 'shares'"),
        ({"name": "masked_lm", "package": "os", "version": "1"}, "is that of a problem of barnraise here"),
        ({"name": "nobodys"}, "install the version of barnraise"),
        ({"name": "masked_lm", "a": 1, "b": 2, "c": 3, "d": 4}, "the problem of the model is"),
    ],
    ids=str,
)
def test_a_hostile_problem_from_the_network_is_refused(told: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check({"model_type": "bert", PROBLEM: told})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("import nothing_like_that", "cannot be loaded: ModuleNotFoundError"),
        ("Plane = 3", "must be a subclass of barnraise.Problem"),
        ("", "cannot be loaded: AttributeError"),
        (FILE.replace("sides: int = 2", "sides: list = None"), "option 'sides' is of the type list"),
        (FILE.replace("sides: int = 2", "sides: int"), "option 'sides' has no default"),
        (FILE + "barnraise.train({}, problem=Plane())", "put the call below `if __name__ == '__main__':`"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(
    content: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane(tmp_path, monkeypatch, content)
    with pytest.raises(InputError, match=said):
        named("plane", {})


@pytest.mark.parametrize("text", ["plane", "plane=plane.py", "=x.py:Y"])
def test_a_malformed_list_of_files_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FILES, text)
    with pytest.raises(ModelError, match=r"is a list of NAME=FILE.py:CLASS"):
        named("plane", {})


def test_a_file_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FILES, "plane=nowhere.py:Plane")
    with pytest.raises(ModelError, match="there is no such file"):
        named("plane", {})


def test_an_unknown_problem_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="masked_lm"):
        named("maskedlm", {})


def test_an_instance_brings_its_options() -> None:
    assert register(Line(slope=3.0)) == ("line", {"slope": 3.0, "fault": "", "odd_from": 0.99})
    assert register(Line) == ("line", {})
    assert named("line", {})["package"] == "problems.py"


def test_a_class_without_a_file_is_refused() -> None:
    found: dict[str, Any] = {"__name__": "nowhere"}
    exec("import barnraise\nclass Nowhere(barnraise.Problem): pass", found)
    with pytest.raises(ModelError, match="the class Nowhere is in no file"):
        register(found["Nowhere"])


def test_a_problem_beside_an_architecture_is_refused() -> None:
    register(Line)
    with pytest.raises(ModelError, match="builds its own model, but the model section has architecture"):
        describe({"problem": "line", "architecture": "gpt2"}, 1, 1)


def built(module: Any, monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    monkeypatch.setattr(Line, "build", lambda self: module() if callable(module) else module)
    register(Line)
    return build(describe({"problem": "line"}, 1, 1))


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (3, "builds int, but must build a torch.nn.Module"),
        (lambda: nn.ReLU(), "has no parameters"),
        (lambda: nn.Linear(2, 2).double(), "has weight in another type than float32"),
        (lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), "has running statistics in 1"),
        (lambda: nn.Linear(-2, 2), "cannot build its module: RuntimeError"),
    ],
)
def test_a_module_that_cannot_be_trained_is_refused(module: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match=said):
        built(module, monkeypatch)


def test_the_activations_of_an_own_module_are_measured() -> None:
    register(Line)
    config = describe({"problem": "line"}, 1, 1)
    one = memory.activation_bytes(config, batch_size=1, context=1)
    assert 3 * 4 <= one < 1000
    assert memory.activation_bytes(config, batch_size=7, context=1) == 7 * one


@pytest.mark.parametrize(
    ("architecture", "problem"),
    [
        ("gpt2", "causal_lm"), ("qwen2", "causal_lm"), ("bert", "masked_lm"), ("roberta", "masked_lm"),
        ("modernbert", "masked_lm"), ("t5", "seq2seq"), ("bart", "seq2seq"), ("no_such_model", "causal_lm"),
    ],
)  # fmt: skip
def test_an_architecture_has_a_usual_problem(architecture: str, problem: str) -> None:
    assert usual_problem(architecture) == problem


def test_an_installed_package_brings_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pip installs it: a module, and metadata with the entry point."""
    (tmp_path / "planes.py").write_text(FILE)
    info = tmp_path / "planes-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planes\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[barnraise.problems]\nplane = planes:Plane\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    told = named("plane", {"sides": 3})
    assert (told["package"], told["version"]) == ("planes", "1.2")
    assert memory.model_size({"model_type": "plane", PROBLEM: told}) == 4


def test_the_names_are_read_without_torch() -> None:
    named = "from barnraise.models.problems import named\nnamed('masked_lm', {})\n"
    program = f"import sys\n{named}assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_class_needs_a_loss() -> None:
    with pytest.raises(ModelError, match="must be a subclass"):
        entry_of_class("odd", nn.Linear, "", "")
    register(Line)
    with pytest.raises(OptionError, match="has no option 'slop'; did you mean 'slope'"):
        named("line", {"slop": 1.0})
    assert problems.is_own({"model_type": "line", PROBLEM: named("line", {})})
