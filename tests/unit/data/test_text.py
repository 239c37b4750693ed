"""Text datasets from real files, by bytes and through real tokenizers."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

from barnraise.core.errors import DataError
from barnraise.data import text, tokenizers
from barnraise.data.shards import Dataset, Format
from barnraise.data.text import TextDocument

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "naïve", "café", "Ω", "語\n"]


def prose(seed: int, words: int = 400) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(words))


def corpus(folder: Path, documents: int = 20) -> list[str]:
    texts = [prose(number) for number in range(documents)]
    for number, content in enumerate(texts):
        path = folder / f"part{number % 3}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return texts


def bpe(folder: Path, eos: str | None = "<|endoftext|>") -> Path:
    """Train and return a byte-level BPE tokenizer with some merges that also truncates."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = [eos] if eos else []
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=special)
    backend.train_from_iterator([prose(number) for number in range(5)], trainer)
    backend.enable_truncation(8)
    folder.mkdir()
    backend.save(str(folder / "tokenizer.json"))
    return folder


def documents_of(rows: np.ndarray, eos: int) -> list[bytes]:
    """Whole documents of bytes in a stream of rows that was not shuffled."""
    parts = itertools.groupby(rows.flatten().tolist(), lambda token: token == eos)
    return [bytes(ids) for is_end, ids in parts if not is_end]


def test_packed_rows_hold_every_document_in_order(tmp_path: Path) -> None:
    texts = corpus(tmp_path)
    documents = text.find([tmp_path])
    rows = np.concatenate(list(text.rows(documents, tokenizers.ByteTokenizer(), 64)))
    found = documents_of(rows, 256)
    expected = [document.path.read_bytes() for document in documents]
    assert sorted(expected) == sorted(content.encode() for content in texts)
    assert found[:-1] == expected[: len(found) - 1]
    assert expected[len(found) - 1].startswith(found[-1])
    assert sum(map(len, expected)) + len(expected) - rows.size < 64


def test_long_documents_are_read_in_chunks_without_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus(tmp_path, 3)
    (tmp_path / "no_line.txt").write_text("語" * 1000)
    documents = text.find([tmp_path])
    whole = np.concatenate(list(text.rows(documents, tokenizers.ByteTokenizer(), 1)))
    monkeypatch.setattr(text, "_CHUNK", 100)
    monkeypatch.setattr(text, "_BATCH", 250)
    assert np.array_equal(np.concatenate(list(text.rows(documents, tokenizers.ByteTokenizer(), 1))), whole)
    for document in documents:
        chunks = list(text._chunks(document))
        assert b"".join(chunk.content for chunk in chunks) == document.path.read_bytes()
        assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        assert all(chunk.content.decode() for chunk in chunks), "chunks never cut a character"


def test_build_by_bytes(tmp_path: Path) -> None:
    corpus(tmp_path / "in")
    meta = text.build(tmp_path / "out", ["in/**/*.txt"], context=64, held_out=0.1, seed=1, root=tmp_path)
    dataset = Dataset.open(tmp_path / "out", verify=True)
    assert (meta.kind, meta.tokenizer, meta.vocab_size, meta.eos_id, meta.pad_id) == ("text", "bytes", 258, 256, 257)
    size = sum(path.stat().st_size for path in (tmp_path / "in").rglob("*.txt"))
    assert 0.05 < dataset.held_out()["tokens"].size / size < 0.15
    assert dataset.num_rows * 64 + dataset.held_out()["tokens"].size <= size + 20
    assert tokenizers.of(dataset).decode(dataset.rows(0, 0, 1)["tokens"][0].tolist())
    again = text.build(tmp_path / "again", [tmp_path / "in"], context=64, held_out=0.1, seed=1)
    assert again == meta
    other = text.build(tmp_path / "other", [tmp_path / "in"], context=64, held_out=0.1, seed=2)
    assert other.held_out != meta.held_out


def test_no_document_is_on_both_sides_even_if_it_is_there_twice(tmp_path: Path) -> None:
    texts = corpus(tmp_path)
    for number, content in enumerate(texts):
        (tmp_path / f"copy{number}.txt").write_text(content)
    documents = text.find([tmp_path])
    assert len(documents) == len(texts)
    train, held = text.split(documents, 0.2, seed=0)
    assert sorted([*train, *held], key=lambda d: d.path) == documents
    assert held
    assert not {d.path.read_bytes() for d in train} & {d.path.read_bytes() for d in held}


@pytest.mark.parametrize("others", [0, 3])
def test_one_long_document_is_cut_at_a_line(tmp_path: Path, others: int) -> None:
    lines = [f"line {number} naïve\n" for number in range(2000)]
    (tmp_path / "long.txt").write_text("".join(lines))
    for number in range(others):
        (tmp_path / f"short{number}.txt").write_text(f"short {number}")
    train, held = text.split(text.find([tmp_path]), 0.1, seed=0)
    (tail,) = held
    head = next(document for document in train if document.path == tail.path)
    content = tail.path.read_bytes()
    assert (head.start, head.stop, tail.stop) == (0, tail.start, len(content))
    assert content[tail.start :].startswith(b"line ")
    assert 0.08 < tail.size / len(content) < 0.101


def test_a_cut_never_splits_a_character(tmp_path: Path) -> None:
    (tmp_path / "one_line.txt").write_text("語" * 1001)
    train, held = text.split(text.find([tmp_path]), 0.1, seed=0)
    content = (tmp_path / "one_line.txt").read_bytes()
    assert content[held[0].start :].decode()
    assert content[: train[0].stop].decode()


def test_a_tokenizer_found_on_disk(tmp_path: Path) -> None:
    corpus(tmp_path / "in")
    folder = bpe(tmp_path / "tokenizer")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<|endoftext|>"}}))
    meta = text.build(tmp_path / "out", [tmp_path / "in"], tokenizer=folder, context=32, held_out=0.1)
    dataset = Dataset.open(tmp_path / "out", verify=True)
    size = len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"])
    assert (meta.tokenizer, meta.vocab_size, meta.pad_id) == ("huggingface", size, None)
    ours, theirs = tokenizers.of(dataset), AutoTokenizer.from_pretrained(tmp_path / "out")
    assert theirs.eos_token_id == ours.eos_id == meta.eos_id
    sample = prose(99)
    assert ours.encode(sample) == theirs(sample, add_special_tokens=False)["input_ids"]
    assert len(ours.encode(sample)) > 8, "the file's own truncation is off"
    assert ours.decode([*ours.encode(sample), ours.eos_id]) == sample
    assert tokenizers.load(folder / "tokenizer.json").vocab_size == size > 257


def test_the_byte_tokenizer_is_the_same_in_transformers(tmp_path: Path) -> None:
    ours = tokenizers.ByteTokenizer()
    for name, content in ours.files().items():
        (tmp_path / name).write_bytes(content)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    sample = "naïve café, 語!\n\t  x<eos><pad>" + "".join(map(chr, range(300)))
    assert theirs(sample)["input_ids"] == ours.encode(sample) == list(sample.encode())
    assert theirs.decode(ours.encode(sample), clean_up_tokenization_spaces=False) == ours.decode(ours.encode(sample))
    assert (theirs.eos_token_id, theirs.pad_token_id) == (ours.eos_id, ours.pad_id)


@pytest.mark.parametrize("special", [True, False])
def test_an_end_of_document_that_a_text_spells_out_is_text(tmp_path: Path, special: bool) -> None:
    folder = bpe(tmp_path / "tokenizer")
    saved = json.loads((folder / "tokenizer.json").read_text())
    saved["added_tokens"][0]["special"] = special
    (folder / "tokenizer.json").write_text(json.dumps(saved))
    tokenizer = tokenizers.load(folder)
    sample = "one<|endoftext|>two"
    assert tokenizer.eos_id not in tokenizer.encode(sample)
    assert tokenizer.decode(tokenizer.encode(sample)) == sample
    (tmp_path / "story.txt").write_text((sample + "\n") * 100)
    meta = text.build(tmp_path / "out", [tmp_path / "story.txt"], tokenizer=folder, context=8, held_out=0.1)
    again = tokenizers.of(Dataset.open(tmp_path / "out"))
    assert again.encode(sample) == tokenizer.encode(sample)
    train = Dataset.open(tmp_path / "out").rows(0, 0, meta.shards[0].rows)["tokens"]
    assert np.count_nonzero(train == tokenizer.eos_id) <= 1  # the one that we set


def test_older_tokenizer_folders_are_converted(tmp_path: Path) -> None:
    new = bpe(tmp_path / "new")
    model = json.loads((new / "tokenizer.json").read_text())["model"]
    old = tmp_path / "old"
    old.mkdir()
    (old / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    (old / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    (old / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]))
    sample = prose(7)
    assert tokenizers.load(old).encode(sample) == tokenizers.load(new).encode(sample)


def test_hidden_files_and_the_dataset_itself_are_left_out(tmp_path: Path) -> None:
    corpus(tmp_path, 10)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "object").write_text("secret")
    (tmp_path / ".env").write_text("secret")
    first = text.build(tmp_path / "out", [tmp_path], context=32, held_out=0.2)
    assert text.build(tmp_path / "out", [tmp_path], context=32, held_out=0.2) == first
    assert {path.name[0] for path in (d.path for d in text.find([tmp_path / "part0"]))} == {"0", "3", "6", "9"}


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        (["*.md"], {}, r"no file matches '\*\.md' \(looked in .*\); check the path"),
        (["part0", "absent"], {}, "no file matches 'absent'"),
        ([], {}, "no files given"),
        (["empty.txt"], {}, "nothing but empty files"),
        (["tiny.txt"], {}, r"held-out part of 0 bytes \(held_out: 0\.05\) does not fill one row of 128 tokens"),
        (["part0"], {"held_out": 0.0}, r"held_out is 0\.0, but must be above 0 and below 1"),
        (["part0"], {"context": 1}, "a row of text has at least 2 tokens"),
        (["part0"], {"context": 100_000}, "does not fill one row of 100000 tokens"),
        (["part0"], {"tokenizer": "no/such"}, "no tokenizer at no/such"),
        (["part0"], {"tokenizer": "."}, "no tokenizer in"),
    ],
)
def test_invalid_options_are_refused(
    tmp_path: Path, files: list[str], options: dict[str, object], message: str
) -> None:
    corpus(tmp_path, 6)
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "tiny.txt").write_text("ab")
    (tmp_path / ".tokenizer").mkdir()
    if options.get("tokenizer") == ".":
        options = {"tokenizer": tmp_path / ".tokenizer"}
    with pytest.raises(DataError, match=message):
        text.build(tmp_path / "out", files, root=tmp_path, **options)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_no_text_is_refused_by_name_with_a_text_tokenizer(tmp_path: Path) -> None:
    corpus(tmp_path / "in")
    (tmp_path / "in" / "picture.png").write_bytes(b"\x89PNG" + bytes(range(256)))
    folder = bpe(tmp_path / "tokenizer")
    with pytest.raises(DataError, match=r"picture\.png is not UTF-8 text \(byte 0\); leave it out, convert it, or use"):
        text.build(tmp_path / "out", [tmp_path / "in"], tokenizer=folder, context=32)
    assert text.build(tmp_path / "out", [tmp_path / "in"], context=32).kind == "text"


def test_tokenizers_that_cannot_be_used(tmp_path: Path) -> None:
    nameless = bpe(tmp_path / "nameless", eos=None)
    with pytest.raises(DataError, match=r"no end-of-text token; name one as 'eos_token' in tokenizer_config\.json"):
        tokenizers.load(nameless)
    (nameless / "tokenizer_config.json").write_text("{")
    with pytest.raises(DataError, match=r"tokenizer_config\.json beside .* is not JSON"):
        tokenizers.load(nameless)
    (nameless / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match="is not a tokenizer"):
        tokenizers.load(nameless)
    form = Format(kind="sat", tokenizer="sat", context=2, vocab_size=4)
    from barnraise.data import shards

    shards.write(tmp_path / "sat", form, [np.ones((2, 2), int)], np.ones((1, 2), int))
    with pytest.raises(DataError, match="made by tokenizer 'sat'"):
        tokenizers.of(Dataset.open(tmp_path / "sat"))


def test_documents_count_their_bytes() -> None:
    assert TextDocument(Path("x"), 3, 10).size == 7
