"""Text to token ids and back: bytes, or a Hugging Face tokenizer found on disk.

Nothing is downloaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from barnraise.core.errors import DataError
from barnraise.data.chat_template import MarkedText
from barnraise.data.meta import MAX_SHARD_BYTES
from barnraise.data.shards import Dataset

_FILE, _CONFIG = "tokenizer.json", "tokenizer_config.json"
_BESIDE = (_CONFIG, "special_tokens_map.json", "chat_template.jinja")
_OLDER = ("vocab.json", "vocab.txt", "tokenizer.model", "spiece.model")
_COMMON_EOS = ("</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", "<|eot_id|>", "<|im_end|>", "[SEP]")

TokenIds = npt.NDArray[np.uint32]
MarkedIds = tuple[TokenIds, npt.NDArray[np.bool_]]


class Tokenizer(Protocol):
    """The interface of a tokenizer for text datasets, samples and exports.

    Ids lie in [0, vocab_size).
    """

    name: str  # as in a dataset's `Format.tokenizer`
    vocab_size: int
    pad_id: int | None
    bos_id: int | None
    eos_id: int
    mask_id: int | None
    leading_id: int | None  # the token before each text: its bos_id, or none

    def encode(self, text: str) -> list[int]:
        """Encode `text` as ids, without special tokens."""

    def decode(self, ids: Sequence[int], *, specials: bool = False) -> str:
        """Decode `ids` to text, without special tokens unless asked for; invalid text becomes U+FFFD."""

    def shown(self, ids: Sequence[int]) -> str:
        """Decode `ids` to text with special tokens by their names."""

    def encode_chunks(self, chunks: Sequence[bytes]) -> Iterable[TokenIds]:
        """Encode each chunk as ids.

        Raises UnicodeDecodeError for invalid UTF-8 if the tokenizer needs text.
        """

    def encode_marked(self, texts: Sequence[MarkedText], *, specials: bool) -> Iterator[MarkedIds]:
        """Yield the ids of each text, without more tokens around it, and which of them overlap its marked parts.

        With `specials` a special token in a text is that token, not its letters.
        """

    def special_tokens(self) -> dict[str, int]:
        """Return the special tokens by their text."""

    def files(self) -> dict[str, bytes]:
        """Return the files by which `AutoTokenizer.from_pretrained` finds the same tokenizer."""


class ByteTokenizer:
    """A tokenizer of bytes (ids 0 to 255), with an end of document (256) and padding (257).

    >>> tokenizer = ByteTokenizer()
    >>> tokenizer.encode("hé"), tokenizer.decode([104, 195, 169, 256])
    ([104, 195, 169], 'hé')
    """

    name = "bytes"
    vocab_size = 258
    eos_id = 256
    pad_id: int | None = 257
    bos_id: int | None = None
    mask_id: int | None = None
    leading_id: int | None = None

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int], *, specials: bool = False) -> str:
        return bytes(token for token in ids if token < 256).decode(errors="replace")

    def shown(self, ids: Sequence[int]) -> str:
        names = {number: text.encode() for text, number in self.special_tokens().items()}
        return b"".join(names.get(token) or bytes([token]) for token in ids).decode(errors="replace")

    def encode_chunks(self, chunks: Sequence[bytes]) -> Iterable[TokenIds]:
        return (np.frombuffer(chunk, dtype=np.uint8).astype(np.uint32) for chunk in chunks)

    def encode_marked(self, texts: Sequence[MarkedText], *, specials: bool) -> Iterator[MarkedIds]:
        for text, spans in texts:
            ids = np.frombuffer(text.encode(), np.uint8).astype(np.uint32)
            marked = np.zeros(len(ids), bool)
            for start, stop in spans:
                first = len(text[:start].encode())
                marked[first : first + len(text[start:stop].encode())] = True
            yield ids, marked

    def special_tokens(self) -> dict[str, int]:
        return {"<eos>": self.eos_id, "<pad>": self.pad_id or 0}

    def files(self) -> dict[str, bytes]:
        """Return the same mapping as the files of a byte-level BPE without merges."""
        specials = {"<eos>": self.eos_id, "<pad>": self.pad_id}
        added = [
            {"id": token, "content": text, "special": True}
            | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
            for text, token in specials.items()
        ]
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
        vocab = {letter: byte for byte, letter in enumerate(_byte_letters())}
        model = {"type": "BPE", "vocab": vocab, "merges": []}
        whole = {"version": "1.0", "added_tokens": added, "pre_tokenizer": level, "decoder": level, "model": model}
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<eos>",
            "pad_token": "<pad>",
            "split_special_tokens": True,  # an `<eos>` in a text is plain text
        }
        return {_FILE: json.dumps(whole).encode(), _CONFIG: json.dumps(config).encode()}


class HuggingFaceTokenizer:
    """A fast tokenizer (`tokenizer.json`) from disk.

    Truncation and padding that the file asks for are switched off.
    """

    name = "huggingface"

    def __init__(self, files: dict[str, bytes], source: str) -> None:
        """Build from `files` by name, tokenizer.json among them; DataError (with `source`) when they cannot be used."""
        from tokenizers import Tokenizer as Backend

        try:
            self._backend = Backend.from_str(files[_FILE].decode())
        except Exception as error:  # the library raises plain Exception
            raise DataError(f"{source} is not a tokenizer: {str(error)[:200]}") from error
        self._backend.no_truncation()
        self._backend.no_padding()
        config = _config(files, source)
        vocab: dict[str, int] = self._backend.get_vocab(with_added_tokens=True)
        if not vocab:
            raise DataError(f"{source} has no tokens; give another tokenizer")
        self.vocab_size = max(vocab.values()) + 1
        self.bos_id, pad_id = vocab.get(config.get("bos_token", "")), vocab.get(config.get("pad_token", ""))
        eos = config.get("eos_token") or next((text for text in _COMMON_EOS if text in vocab), "")
        if eos not in vocab:
            raise DataError(f"{source} names no end-of-text token; name one as 'eos_token' in {_CONFIG} beside it")
        self.eos_id, self.mask_id = vocab[eos], vocab.get(config.get("mask_token", ""))
        first = self._backend.encode("", add_special_tokens=True).ids[:1]
        self.leading_id = self.bos_id if first == [self.bos_id] else None
        named = (config.get("bos_token", ""), eos, config.get("pad_token", ""))
        self._backend.add_special_tokens([text for text in named if text in vocab])
        self._backend.encode_special_tokens = True  # special tokens in a text are text: only this class ends documents
        self.pad_id = None if pad_id == self.eos_id else pad_id  # an end that is also padding must stay learnable
        config = {"tokenizer_class": "PreTrainedTokenizerFast"} | config | {"eos_token": eos}
        self._files = files | {_CONFIG: json.dumps(config).encode()}

    @classmethod
    def load(cls, path: Path | str) -> HuggingFaceTokenizer:
        """Load a tokenizer.json, or a folder that holds one (or files from which transformers makes one)."""
        return cls(files_at(path), str(path))

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int], *, specials: bool = False) -> str:
        text: str = self._backend.decode([int(token) for token in ids], skip_special_tokens=not specials)
        return text

    def shown(self, ids: Sequence[int]) -> str:
        text: str = self._backend.decode([int(token) for token in ids], skip_special_tokens=False)
        return text

    def encode_chunks(self, chunks: Sequence[bytes]) -> Iterable[TokenIds]:
        texts = [chunk.decode() for chunk in chunks]
        encodings = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        return (np.array(encoding.ids, dtype=np.uint32) for encoding in encodings)

    def encode_marked(self, texts: Sequence[MarkedText], *, specials: bool) -> Iterator[MarkedIds]:
        backend = self._with_specials if specials else self._backend
        encodings = backend.encode_batch([marked.text for marked in texts], add_special_tokens=False)
        for (_, spans), encoding in zip(texts, encodings, strict=True):
            ids = np.array(encoding.ids, dtype=np.uint32)
            marked = np.zeros(len(ids), bool)
            for start, stop in spans:
                first = _token_at(encoding, range(start, stop))
                last = _token_at(encoding, range(stop - 1, start - 1, -1))
                if first is not None and last is not None:
                    marked[first : _last_of(encoding, last, stop) + 1] = True
            yield ids, marked

    @cached_property
    def _with_specials(self) -> Any:
        """The tokenizer that reads special tokens in a text as such."""
        backend = type(self._backend).from_str(self._backend.to_str())
        backend.encode_special_tokens = False
        return backend

    def special_tokens(self) -> dict[str, int]:
        added = self._backend.get_added_tokens_decoder()
        return {token.content: number for number, token in added.items() if token.special}

    def files(self) -> dict[str, bytes]:
        return dict(self._files)


def _last_of(encoding: Any, token: int, stop: int) -> int:
    """Return the last token that has bytes of a character before `stop`, from `token` on, which has its first ones."""
    while (found := encoding.token_to_chars(token + 1) if token + 1 < len(encoding) else None) and found[0] < stop:
        if found[1] <= found[0]:
            break
        token += 1
    return token


def _token_at(encoding: Any, places: range) -> int | None:
    """Return the token of the first of these characters that has one: white space may have none."""
    found = (encoding.char_to_token(place) for place in places)
    return next((token for token in found if token is not None), None)


def load(tokenizer: str | Path) -> Tokenizer:
    """Load `bytes`, or the Hugging Face tokenizer at a path; DataError when there is none."""
    return ByteTokenizer() if tokenizer == ByteTokenizer.name else HuggingFaceTokenizer.load(tokenizer)


def is_in(folder: Path) -> bool:
    """Return whether a folder has the files of a tokenizer."""
    return any((folder / name).is_file() for name in (_FILE, *_OLDER))


def files_at(path: Path | str) -> dict[str, bytes]:
    """Read the files of the tokenizer at a path by name, tokenizer.json among them.

    `path` is a tokenizer.json, or a folder that holds one (or files from which transformers makes one). DataError when
    there is none.
    """
    path = Path(path).expanduser()
    file = path / _FILE if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        return _converted(path)
    beside = [file.parent / name for name in _BESIDE]
    return {_FILE: _read(file)} | {other.name: _read(other) for other in beside if other.is_file()}


def of(dataset: Dataset) -> Tokenizer:
    """Return the tokenizer of a text dataset; DataError for datasets of another kind."""
    names: dict[str, str | Path] = {ByteTokenizer.name: "bytes", HuggingFaceTokenizer.name: dataset.folder}
    if dataset.meta.tokenizer not in names:
        raise DataError(f"{dataset.folder} was made by tokenizer '{dataset.meta.tokenizer}', which is not a text one")
    return load(names[dataset.meta.tokenizer])


def _byte_letters() -> list[str]:
    """Return one visible letter for each byte, as in byte-level BPE files: itself if printable, else U+0100 on."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in visible else next(spare)) for byte in range(256)]


def _config(files: dict[str, bytes], source: str) -> dict[str, Any]:
    """Merge tokenizer_config.json over special_tokens_map.json, special tokens as plain text, without code to run."""
    merged: dict[str, Any] = {}
    for name in reversed(_BESIDE[:2]):
        try:
            content = json.loads(files.get(name, b"{}"))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{name} beside {source} is not JSON ({error}); repair or remove it") from error
        merged |= content if isinstance(content, dict) else {}
    merged.pop("auto_map", None)
    for key in ("bos_token", "eos_token", "pad_token"):
        value = merged.get(key)
        text = value.get("content") if isinstance(value, dict) else value
        merged.pop(key, None)
        if isinstance(text, str):
            merged[key] = text
    return merged


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_SHARD_BYTES:
            raise DataError(f"{path} has {path.stat().st_size} bytes, but a tokenizer file may have {MAX_SHARD_BYTES}")
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"no tokenizer at {path} ({error.strerror}); give 'bytes', a {_FILE} or a folder with one"
        ) from error


def _converted(folder: Path) -> dict[str, bytes]:
    """Convert the files of an older checkpoint folder (vocab.json, merges.txt ...) into a tokenizer.json."""
    if not is_in(folder):
        raise DataError(f"no tokenizer in {folder}; give 'bytes', a {_FILE} or a folder with one")
    try:
        from transformers import AutoTokenizer

        slow = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        content = slow.backend_tokenizer.to_str().encode()
    except Exception as error:  # a foreign folder may raise any exception
        raise DataError(f"{folder} has no {_FILE}, and none could be made: {str(error)[:200]}") from error
    specials = {key: getattr(slow, key) for key in ("bos_token", "eos_token", "pad_token")}
    config = {key: str(text) for key, text in specials.items() if text is not None}
    return {_FILE: content, _CONFIG: json.dumps(config).encode()}
