"""The problems that can be trained, by name: those built in, of installed packages, and of files of one's own.

Nothing of a problem's code travels. The config of a model names the problem, its options, and the package and version
that it comes from; a machine that has not got exactly that refuses the run, and says what to install.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import inspect
import os
import sys
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from barnraise.core.errors import BarnraiseError, ModelError, OptionError, UnknownNameError
from barnraise.core.registry import Catalog, Entry, Option

GROUP = "barnraise.problems"
"""The group of entry points: the name of a problem, and its class."""

FILES = "BARNRAISE_PROBLEMS"
"""The environment variable that names problems in files: NAME=FILE.py:CLASS, several with commas."""

PROBLEM = "problem"
"""The key of a model's config that names its problem; the causal language model without it."""

CAUSAL, MASKED, SEQ2SEQ = "causal_lm", "masked_lm", "seq2seq"

_loading: list[str] = []  # the file that is being loaded


@dataclass(frozen=True)
class Traits:
    """The traits of a problem.

    `auto_class` is transformers' class that makes the module, and `listed` its table of model types; a problem without
    it has a `build` of its own. `package` and `version` say what a machine must have to train it.
    """

    auto_class: str = ""
    listed: str = ""
    package: str = ""
    version: str = ""


class Problems(Catalog):
    """The catalog of problems: an entry point, and a file of one's own, name a class."""

    def entry(self, name: str) -> Entry:
        if name not in self.entries:
            for known, place in _in_files():
                if known == name:
                    self.entries[name] = _of_file(name, place)
                    return self.entries[name]
            for point in metadata.entry_points(group=self.group):
                if point.name == name:
                    package, version = (point.dist.name, point.dist.version) if point.dist else ("", "")
                    self.entries[name] = entry_of_class(name, _loaded(point), package, version)
                    return self.entries[name]
        return super().entry(name)


CATALOG = Problems(
    "problem",
    GROUP,
    [
        Entry(
            CAUSAL,
            "barnraise.training.causal_lm:CausalLM",
            "the next token from those before it",
            declares=Traits("AutoModelForCausalLM", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"),
        ),
        Entry(
            MASKED,
            "barnraise.training.masked_lm:MaskedLM",
            "masked tokens from all others, as BERT is trained",
            options=(Option("share", float, 0.15, "Share of the tokens to predict.", minimum=0.01, maximum=0.9),),
            declares=Traits("AutoModelForMaskedLM", "MODEL_FOR_MASKED_LM_MAPPING_NAMES"),
        ),
        Entry(
            SEQ2SEQ,
            "barnraise.training.seq2seq:Seq2Seq",
            "a target text from a source text, as T5 is trained",
            declares=Traits("AutoModelForSeq2SeqLM", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES"),
        ),
    ],
)


def named(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a model's config says of its problem; UnknownNameError or OptionError when there is none such."""
    resolved, traits = CATALOG.resolve(name, options), CATALOG.entry(name).declares
    found: dict[str, Any] = {"name": name, "options": resolved}
    return found | ({"package": traits.package, "version": traits.version} if traits.package else {})


def entry_of(config: Mapping[str, Any]) -> Entry:
    """Return the entry of a config's problem; ModelError when it is not known here, or in another version."""
    told = config.get(PROBLEM, {"name": CAUSAL})
    try:
        name, package, version = told["name"], told.get("package", ""), told.get("version", "")
        texts = (name, package, version)
        if not all(isinstance(text, str) and len(text) <= 200 for text in texts) or len(told) > 4:
            raise TypeError
        options = dict(told.get("options", {}))
    except (TypeError, KeyError, AttributeError, ValueError):
        raise ModelError(f"the problem of the model is {str(told)[:80]}; make it with `describe`") from None
    try:
        entry = CATALOG.entry(name)
    except UnknownNameError as error:
        if package:
            raise ModelError(f"the problem '{name}' is not installed here; {_remedy(name, package, version)}") from None
        raise ModelError(f"{error}; install the version of barnraise that the run's host has") from None
    traits = entry.declares
    if (traits.package, traits.version) != (package, version):
        here = f"{traits.package} {traits.version}" if traits.package else "a problem of barnraise"
        raise ModelError(f"the problem '{name}' is that of {here} here; {_remedy(name, package, version)}")
    entry.resolve(CATALOG.family, options)
    return entry


def is_own(config: Mapping[str, Any]) -> bool:
    """Return whether the config's problem makes the module itself, not transformers."""
    return not entry_of(config).declares.auto_class


def made(config: Mapping[str, Any]) -> Any:
    """Return the problem of a config, made with its options."""
    told = config.get(PROBLEM, {"name": CAUSAL})
    entry_of(config)
    try:
        return CATALOG.create(told["name"], **told.get("options", {}))
    except BarnraiseError:
        raise
    except Exception as error:  # a user's package may raise any exception
        raise ModelError(f"the problem '{told['name']}' cannot be made: {type(error).__name__}: {error}") from error


def _remedy(name: str, package: str, version: str) -> str:
    if package.endswith(".py"):
        return (
            f"the run needs {package} with the digest {version}: set {FILES}={name}=PATH/{package}:CLASS to your copy, "
            "then join again"
        )
    return f"the run needs the package {package} {version}: pip install '{package}=={version}', then join again"


# Classes


def entry_of_class(name: str, found: Any, package: str, version: str) -> Entry:
    """Return the entry of a class, whose dataclass fields are the options."""
    if not (inspect.isclass(found) and hasattr(found, "loss") and hasattr(found, "build")):
        raise ModelError(f"{GROUP}: '{name}' is {found!r}, but must be a subclass of barnraise.Problem")
    options = tuple(_options(name, found))
    summary = (inspect.getdoc(found) or name).splitlines()[0]
    return Entry(name, f"{found.__module__}:{found.__qualname__}", summary, options, Traits("", "", package, version))


def _options(name: str, found: type) -> Iterator[Option]:
    if not dataclasses.is_dataclass(found):
        return
    types = typing.get_type_hints(found)
    for field in dataclasses.fields(found):
        kind = types[field.name]
        if kind not in (int, float, str, bool):
            raise OptionError(
                f"problem '{name}': option '{field.name}' is of the type {getattr(kind, '__name__', kind)}, "
                "but options are int, float, str or bool"
            )
        if field.default is dataclasses.MISSING:
            raise OptionError(f"problem '{name}': option '{field.name}' has no default; give one")
        yield Option(field.name, types[field.name], field.default, "")


def _loaded(point: metadata.EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # a user's package may raise any exception
        raise ModelError(f"{GROUP}: '{point.name}' of {point.value} cannot be loaded: {error}") from error


# Files


def register(found: Any) -> tuple[str, dict[str, Any]]:
    """Make the class of a problem known to this process and those that it starts, and return its name and options.

    `found` is the class, or an instance, whose fields are the options.
    """
    kind = found if inspect.isclass(found) else type(found)
    name = kind.__name__.lower()
    if _loading:
        raise ModelError(
            f"{_loading[-1]} starts a run as it is loaded, which a worker does too; put the call below "
            "`if __name__ == '__main__':`"
        )
    try:
        source = inspect.getsourcefile(kind)
    except TypeError:
        source = None
    if source is None or not Path(source).is_file():
        raise ModelError(f"the class {kind.__name__} is in no file; put it into one, from which workers load it")
    path = Path(source).resolve()
    others = [f"{known}={place}" for known, place in _in_files() if known != name]
    os.environ[FILES] = ",".join([f"{name}={path}:{kind.__qualname__}", *others])
    CATALOG.entries[name] = entry_of_class(name, kind, path.name, _digest(path))
    is_instance = dataclasses.is_dataclass(found) and not isinstance(found, type)
    given = dataclasses.asdict(found) if is_instance else {}
    return name, given


def _in_files() -> Iterator[tuple[str, str]]:
    """Yield the name and the place of each problem that the environment names."""
    for item in filter(None, os.environ.get(FILES, "").split(",")):
        name, sign, place = item.partition("=")
        if not (name and sign and ":" in place):
            raise ModelError(f"{FILES} has {item!r}, but is a list of NAME=FILE.py:CLASS")
        yield name, place


def _of_file(name: str, place: str) -> Entry:
    file, _, kind = place.rpartition(":")
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise ModelError(f"{FILES} names {file}, but there is no such file; give the path of a Python file")
    module = f"barnraise_problem_{name}"
    spec = importlib.util.spec_from_file_location(module, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{FILES} names {file}, which is no Python file; give one that ends in .py")
    sys.modules[module] = loaded = importlib.util.module_from_spec(spec)
    try:
        with _loads(path.name):
            spec.loader.exec_module(loaded)
        return entry_of_class(name, getattr(loaded, kind), path.name, _digest(path))
    except BarnraiseError:
        raise
    except Exception as error:  # a user's file may raise any exception
        raise ModelError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from error


@contextmanager
def _loads(name: str) -> Iterator[None]:
    _loading.append(name)
    try:
        yield
    finally:
        _loading.pop()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
