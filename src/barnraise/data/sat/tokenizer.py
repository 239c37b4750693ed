"""Formulas and traces as token ids: one token a clause or a literal, one token a word of the trace.

An example is `<bos> formula : trace <eos>`. With the prompt `clauses` a clause is one token (`1,-3`; literals by
variable): restated traces then simplify token by token, and a clause of one literal is the same token as the literal.
The vocabulary holds every clause of up to `longest` literals over `num_variables` variables, so it suits small
formulas: 37 tokens for 3 variables and lengths to 3, 243 for 6, 9931 for 20. With the prompt `literals` a literal is
one token, of a form of its own (`(1` begins a clause, `,-3` continues it): clauses may have any length, and the
vocabulary grows with the variables alone. Traces of a trail style have their own words (see `trail`).

It is kept in one file, `tokenizer.json`, in the format of Hugging Face tokenizers (a word-level model over
whitespace), so that models trained on it ship with a tokenizer that `AutoTokenizer` loads.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from barnraise.core.errors import DataError, OptionError, UnknownNameError
from barnraise.data.sat.dimacs import Formula
from barnraise.data.sat.dpll import EMPTY, HOLDS, clause_token
from barnraise.data.sat.styles import (
    CLAUSES,
    LITERALS,
    PROMPTS,
    RESTATED,
    STYLES,
    TERSE,
    TRAIL,
    TRAIL_STEPS,
    TRAIL_STYLES,
)
from barnraise.data.sat.trail import CONFLICT, END

FILE, CONFIG = "tokenizer.json", "tokenizer_config.json"
MAX_VOCAB = 65_536
MAX_FILE_BYTES = 16 * 2**20
PAD, BOS, EOS, COLON = "<pad>", "<bos>", "<eos>", ":"
_SPECIAL = (PAD, BOS, EOS)
_WORDS = {
    TERSE: (COLON, "D", "U", "B", "SAT", "UNSAT", HOLDS, EMPTY),
    RESTATED: (COLON, "D", "U", "B", "SAT", "UNSAT", HOLDS, EMPTY),
    TRAIL: (COLON, CONFLICT, "SAT", "UNSAT"),
    TRAIL_STEPS: (COLON, CONFLICT, "SAT", "UNSAT", END),
}


def vocab_size(num_variables: int, longest: int, style: str = RESTATED, prompt: str = CLAUSES) -> int:
    """Return how many tokens such a tokenizer has, or MAX_VOCAB + 1 when there are more than that."""
    if num_variables > MAX_VOCAB:
        return MAX_VOCAB + 1
    size = len(_SPECIAL) + len(_WORDS[style]) + 2 * num_variables * (style in TRAIL_STYLES)
    if prompt == LITERALS:
        return min(size + 6 * num_variables, MAX_VOCAB + 1)
    for length in range(1, longest + 1):
        if size > MAX_VOCAB:
            return MAX_VOCAB + 1
        size += math.comb(num_variables, length) * 2**length
    return min(size, MAX_VOCAB + 1)


class SatTokenizer:
    """Ids of formulas and traces over `num_variables` variables with clauses of at most `longest` literals.

    `style` and `prompt` are two of `styles`; `longest` has no effect with the prompt `literals`.

    >>> tokenizer = SatTokenizer(num_variables=3, longest=2)
    >>> ids = tokenizer.prompt(Formula(3, ((-3, 1), (2,))))
    >>> tokenizer.decode(ids), tokenizer.formula(ids).clauses
    ('1,-3 2 :', ((1, -3), (2,)))
    >>> tokenizer = SatTokenizer(3, 2, style="trail", prompt="literals")
    >>> tokenizer.decode(tokenizer.example(Formula(3, ((-3, 1), (2,))), ["2", "D1", "D3", "SAT"]))
    '(1 ,-3 (2 : 2 D1 D3 SAT'
    """

    name = "sat"

    def __init__(self, num_variables: int, longest: int, *, style: str = RESTATED, prompt: str = CLAUSES) -> None:
        for what, value, known in (("trace style", style, STYLES), ("prompt", prompt, PROMPTS)):
            if value not in known:
                raise UnknownNameError(what, value, known)
        if not 1 <= longest <= num_variables:
            raise OptionError(f"clauses of up to {longest} literals over {num_variables} variables are impossible")
        if style == RESTATED and prompt == LITERALS:
            raise OptionError(
                f"traces of the style '{RESTATED}' have clauses as tokens, but the prompt is '{LITERALS}'; use the "
                f"prompt '{CLAUSES}' or another style"
            )
        if vocab_size(num_variables, longest, style, prompt) > MAX_VOCAB:
            raise OptionError(
                f"the clauses of up to {longest} literals over {num_variables} variables exceed a vocabulary of "
                f"{MAX_VOCAB}; use fewer variables, shorter clauses, or prompts of literals"
            )
        self.num_variables, self.style, self.prompt_style = num_variables, style, prompt
        self.longest = num_variables if prompt == LITERALS else longest
        self.tokens = [*_SPECIAL, *_WORDS[style], *_literals_and_clauses(num_variables, longest, style, prompt)]
        self.vocab_size = len(self.tokens)
        self.ids = {token: index for index, token in enumerate(self.tokens)}
        self.pad_id, self.bos_id, self.eos_id, self.colon_id = (self.ids[t] for t in (*_SPECIAL, COLON))
        self._clauses: dict[frozenset[int], list[int]] = {}  # ids of clauses that were encoded before

    def encode_tokens(self, tokens: Iterable[str]) -> list[int]:
        """Return the ids of `tokens`; DataError names the first that is not in the vocabulary."""
        try:
            return [self.ids[token] for token in tokens]
        except KeyError as error:
            raise DataError(
                f"{str(error.args[0])[:40]!r} is no token of {self.num_variables} variables and clauses of at most "
                f"{self.longest} literals; make the dataset with larger ones"
            ) from None

    def encode(self, text: str) -> list[int]:
        """Encode whitespace-separated tokens as ids, without special tokens around them."""
        return self.encode_tokens(text.split())

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids` without special tokens."""
        return " ".join(self.decode_tokens(ids))

    def shown(self, ids: Iterable[int]) -> str:
        """Return the text of `ids` with special tokens by their names."""
        return " ".join(self.tokens[index] for index in ids)

    def decode_tokens(self, ids: Iterable[int]) -> list[str]:
        """Decode `ids` to tokens, without special ones; DataError for an id outside the vocabulary."""
        tokens = []
        for index in ids:
            if not 0 <= index < self.vocab_size:
                raise DataError(f"token id {index} is outside the vocabulary of {self.vocab_size}")
            if index >= len(_SPECIAL):
                tokens.append(self.tokens[index])
        return tokens

    def prompt(self, formula: Formula, slots: int = 0) -> list[int]:
        """Return `<bos> clauses :`, padded to `slots` clauses with `T`, which a model completes with a trace."""
        found = [self.bos_id]
        for clause in formula.clauses:
            found += self._clause(clause)
        padding = [HOLDS] * (slots - len(formula.clauses))
        return [*found, *self.encode_tokens(padding), self.colon_id]

    def _clause(self, clause: tuple[int, ...]) -> list[int]:
        literals = frozenset(clause)
        known = self._clauses.get(literals)
        if known is None:
            token = clause_token(clause)
            if self.prompt_style == LITERALS and literals:
                first, *others = token.split(",")
                known = self.encode_tokens([f"({first}", *(f",{other}" for other in others)])
            else:
                known = self.encode_tokens([token])
            if len(self._clauses) >= MAX_VOCAB:
                self._clauses.clear()
            self._clauses[literals] = known
        return known

    def example(self, formula: Formula, trace: Sequence[str], slots: int = 0) -> list[int]:
        """Return the ids of the prompt, the trace and `<eos>`."""
        return [*self.prompt(formula, slots), *self.encode_tokens(trace), self.eos_id]

    def formula(self, ids: Iterable[int]) -> Formula:
        """Return the formula of a prompt or an example, without clauses that hold (padding)."""
        clauses: list[tuple[int, ...]] = []
        for token in self.decode_tokens(ids):
            if token == COLON:
                return Formula(self.num_variables, tuple(clauses))
            if token == HOLDS:
                continue
            if self.prompt_style == CLAUSES or token == EMPTY:
                clauses.append(_literals(token))
            elif token[0] == "(":
                clauses.append(_literals(token[1:]))
            elif token[0] == "," and clauses:
                clauses[-1] += _literals(token[1:])
            else:
                raise DataError(f"{token!r} is no literal of a clause")
        raise DataError(f"the row is no example of a formula: it has no '{COLON}'")

    def trace(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens after the prompt, up to `<eos>`."""
        row = [int(index) for index in ids]
        start = row.index(self.colon_id) + 1 if self.colon_id in row else 0
        stop = row.index(self.eos_id, start) if self.eos_id in row[start:] else len(row)
        return self.decode_tokens(row[start:stop])

    def completion(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens a model wrote after a prompt, up to `<eos>`, with special ones, which are judged too."""
        written = itertools.takewhile(lambda index: index != self.eos_id, ids)
        return [self.tokens[index] if 0 <= index < self.vocab_size else f"<{index}>" for index in written]

    def files(self) -> dict[str, bytes]:
        """Return the files for `AutoTokenizer.from_pretrained`; `load` needs only the first."""
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        special = [{"id": self.ids[token], "content": token, "special": True, **flags} for token in _SPECIAL]
        words = {
            "version": "1.0",
            "added_tokens": special,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {"type": "WordLevel", "vocab": self.ids, "unk_token": PAD},
        }
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": PAD, "bos_token": BOS, "eos_token": EOS}
        return {name: json.dumps(content).encode() for name, content in ((FILE, words), (CONFIG, config))}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the one file that `load` reads."""
        Path(path).write_bytes(self.files()[FILE])

    def to_hugging_face(self, folder: str | os.PathLike[str]) -> None:
        """Write the files that `transformers.AutoTokenizer.from_pretrained(folder)` reads."""
        for name, content in self.files().items():
            (Path(folder) / name).write_bytes(content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SatTokenizer:
        """Load a file that `save` wrote, or a folder with it; DataError for anything else."""
        path = Path(path) / FILE if Path(path).is_dir() else Path(path)
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                raise DataError(f"{path} has more than {MAX_FILE_BYTES} bytes, which no SAT tokenizer needs")
            vocab = json.loads(path.read_bytes())["model"]["vocab"]
            sizes = [token.count(",") + 1 for token in vocab if token[-1:].isdigit()]
            num_variables = max(int(token) for token in vocab if token.isascii() and token.isdigit())
            prompt = LITERALS if "(1" in vocab else CLAUSES
            style = TRAIL_STEPS if END in vocab else TRAIL if "D1" in vocab else RESTATED
            tokenizer = cls(
                num_variables,
                1 if prompt == LITERALS else max(sizes),
                style=TERSE if prompt == LITERALS and style == RESTATED else style,
                prompt=prompt,
            )
        except OSError as error:
            raise DataError(f"{path}: no SAT tokenizer there ({error.strerror or error})") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OptionError) as error:
            raise DataError(
                f"{path} is not a SAT tokenizer ({type(error).__name__}); make the dataset again"
            ) from error
        if tokenizer.ids != vocab:
            raise DataError(f"{path} is not a SAT tokenizer: its vocabulary is another one; make the dataset again")
        return tokenizer


def _literals_and_clauses(num_variables: int, longest: int, style: str, prompt: str) -> Iterator[str]:
    """Yield the tokens that depend on the variables."""
    literals = [str(literal) for variable in range(1, num_variables + 1) for literal in (variable, -variable)]
    if style in TRAIL_STYLES:
        yield from (f"D{literal}" for literal in literals)
    if prompt == LITERALS:
        yield from literals
        yield from (f"({literal}" for literal in literals)
        yield from (f",{literal}" for literal in literals)
    else:
        yield from map(clause_token, _all_clauses(num_variables, longest))


def _all_clauses(num_variables: int, longest: int) -> Iterator[tuple[int, ...]]:
    for size in range(1, longest + 1):
        for variables in itertools.combinations(range(1, num_variables + 1), size):
            for signs in itertools.product((1, -1), repeat=size):
                yield tuple(sign * variable for sign, variable in zip(signs, variables, strict=True))


def _literals(token: str) -> tuple[int, ...]:
    try:
        return () if token == EMPTY else tuple(int(literal) for literal in token.split(","))
    except ValueError:
        raise DataError(f"{token!r} is no clause") from None
