"""`barnraise init`: a run file to start from, never in place of one that is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnraise.cli import main
from barnraise.config import load, template
from barnraise.config.document import parse
from barnraise.plan import Purpose, resolve


@pytest.mark.parametrize("more", [[], ["--all"]])
def test_it_writes_a_sound_run_file(more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in template.presets():
        file = tmp_path / f"{name}.yaml"
        with pytest.raises(SystemExit) as ended:
            main.main(["init", str(file), "--preset", name, *more])
        assert ended.value.code == 0
        purpose = Purpose.SERVE if name in ("lan", "pretrain") else Purpose.TRAIN
        assert resolve(load(file), purpose=purpose).warnings == ()
        assert f"barnraise {purpose.value} {file}" in capsys.readouterr().out


def test_it_writes_run_yaml_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main.main(["init"])
    assert load("run.yaml") == load(template.preset("sat"))


def test_the_file_is_short_unless_every_key_is_asked_for(tmp_path: Path) -> None:
    for name in template.presets():
        assert len(template.short(name).splitlines()) <= (15 if name in ("chat", "lora", "pretrain") else 40)
        assert load(parse(template.render(name, {}).encode(), "all").content) == load(template.preset(name))
        assert "#max_multiplier:" in template.render(name, {})


def test_presets_pass_check_once_their_files_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main.main(["init", "--preset", "text"])
    assert "fill in data.files: put your text files in a folder `texts` here" in capsys.readouterr().out
    assert main.main(["check", "run.yaml"]) == 2
    assert "put text files there, or name others" in capsys.readouterr().err
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one.txt").write_text("barn " * 500)
    with pytest.raises(SystemExit) as ended:
        main.main(["check", "run.yaml"])
    assert ended.value.code == 0


def test_the_usual_preset_trains_the_model_of_the_demo_on_its_formulas() -> None:
    demo = parse((Path(__file__).parents[3] / "examples" / "sat-neo.yaml").read_bytes(), "demo").content
    short = template.preset("sat")
    assert short["model"] == demo["model"]
    assert {**demo["data"], **short["data"], "held_out_sets": []} == {**demo["data"], "held_out_sets": []}
    assert {**demo["training"], **short["training"]} == demo["training"]
    assert short["data"]["held_out_sets"] == demo["data"]["held_out_sets"][:1]
    assert (short["exchange"], short["staleness"]) == (demo["exchange"], demo["staleness"])


def test_it_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("mine")
    assert main.main(["init", str(file)]) == 2
    assert f"error: {file} exists, and is left as it is; name another file" in capsys.readouterr().err
    assert file.read_text() == "mine"


def test_it_needs_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["init", str(tmp_path / "nowhere" / "run.yaml")]) == 2
    assert "cannot be written (No such file or directory)" in capsys.readouterr().err


def test_an_unknown_preset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["init", str(tmp_path / "run.yaml"), "--preset", "lam"]) == 2
    assert "unknown preset 'lam'; did you mean 'lan'?" in capsys.readouterr().err
    assert not (tmp_path / "run.yaml").exists()
