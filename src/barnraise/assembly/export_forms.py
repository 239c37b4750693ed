"""The forms of an exported model: what is written, and how the round trip loads it; imports torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from barnraise.assembly.opening import opened_vector
from barnraise.config.load import load as load_run_file
from barnraise.core.errors import InputError
from barnraise.data import tokenizers
from barnraise.data.chat_template import TEMPLATE_FILE, ChatTemplate
from barnraise.data.columns import TRAINED
from barnraise.data.shards import Dataset
from barnraise.exports import gguf_file, round_trip
from barnraise.exports.conversations import longest_prompt, stops_of, talks_of
from barnraise.exports.gguf_shapes import shape_of
from barnraise.exports.gguf_vocabulary import vocabulary_of
from barnraise.exports.modelfile import MODELFILE, Turns, modelfile, turns_of
from barnraise.exports.prompts import prompts_of
from barnraise.exports.round_trip import F32, Prompt, RoundTrip, TextEnds, Written
from barnraise.ledger import RunDirectory, StoredCheckpoint
from barnraise.models.build import load
from barnraise.models.exchange.catalog import ADAPTER, CATALOG, GGUF, MODEL
from barnraise.models.exchange.frozen_base import folder_of
from barnraise.models.exchange.record import Exchange
from barnraise.models.export import filled, merged, save, save_adapter, trained_model
from barnraise.models.instantiate import hugging_face_config
from barnraise.models.problems import PROBLEM, entry_of
from barnraise.training.seq2seq import start_of
from barnraise.wire.manifest import Manifest

_USE = {
    MODEL: """from transformers import {auto}, AutoTokenizer

model = {auto}.from_pretrained("{folder}")
tokenizer = AutoTokenizer.from_pretrained("{folder}")
""",
    ADAPTER: """from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("{base}")
model = PeftModel.from_pretrained(base, "{folder}")
""",
    GGUF: """ollama create {name} -f Modelfile     # Ollama
llama-server -m {file}     # llama.cpp
""",
}


@dataclass(frozen=True)
class ExportSource:
    """The run whose model is exported: its folder, manifest and dataset, and the files that go beside the weights.

    `warn` gets messages about what the exported files do not hold, or the round trip does not compare.
    """

    run: RunDirectory
    told: Manifest
    exchange: Exchange
    dataset: Dataset
    files: dict[str, bytes]
    name: str
    base: Path | None
    warn: Callable[[str], None]
    key_file: Path | None = None

    @classmethod
    def of(
        cls,
        run: RunDirectory,
        told: Manifest,
        files: dict[str, bytes],
        warn: Callable[[str], None],
        key_file: Path | None = None,
    ) -> ExportSource:
        """Return the source in the folder of `run`; `files` are the tokenizer's, `key_file` decrypts its model."""
        run_file = load_run_file(run.run_file)
        base = None if run_file.model.path is None else Path(run_file.model.path).expanduser()
        exchange = Exchange.of(told.model, told.exchange)
        about = run, told, exchange, Dataset.open(run.data), files
        return cls(*about, name=run_file.run.name, base=base, warn=warn, key_file=key_file)

    def with_file(self, name: str, content: bytes | None) -> ExportSource:
        """Return the same with one more file, if it has a content."""
        return self if content is None else replace(self, files=self.files | {name: content})

    def use(self, form: str, folder: Path, kind: str = "f16") -> tuple[str, str]:
        """Return lines that use the exported files, and their language."""
        auto = entry_of(self.told.model).declares.auto_class
        names = {
            "auto": auto,
            "folder": folder.name,
            "base": self.base or "BASE",
            "name": self.name,
            "file": self.file(kind),
        }
        return _USE[form].format(**names).rstrip(), "bash" if form == GGUF else "python"

    def file(self, kind: str) -> str:
        """Return the name of the GGUF file with matrices of the type `kind`."""
        return f"{self.name}-{kind.upper()}.gguf"

    @cached_property
    def ends(self) -> TextEnds:
        """Return the tokens that end a text of the data, or else of the model's config."""
        meta, config = self.dataset.meta, self.told.model
        eos = config.get("eos_token_id") if meta.eos_id is None else meta.eos_id
        pad = config.get("pad_token_id") if meta.pad_id is None else meta.pad_id
        return TextEnds(eos, () if self.template is None else stops_of(self.dataset, tokenizers.of(self.dataset)), pad)

    @cached_property
    def template(self) -> ChatTemplate | None:
        """Return the chat template of the run's tokenizer, if it has one."""
        return ChatTemplate.of(self.files, "of the run") if TEMPLATE_FILE in self.files else None

    @cached_property
    def turns(self) -> Turns | None:
        """Return the turns of the chat template, where it is regular."""
        template = self.template
        return None if template is None else turns_of(lambda talk, answer: template.render(talk, prompt=answer).text)

    def prompts(self) -> list[Prompt]:
        """Return the prompts of the round trip: conversations where the data has them, or else pieces of rows."""
        data, context = self.dataset, self.dataset.meta.context
        template = self.template if TRAINED in (column.name for column in data.meta.fields) else None
        if template is not None and (found := talks_of(data, tokenizers.of(data), template, self.turns)):
            return found
        found = prompts_of(data)
        if not found:
            self.warn(
                "the round trip compares no tokens: no piece of the held-out rows has a text that leaves room in the "
                f"context of {context} tokens; try the exported model with texts of your own"
            )
        elif template is not None:
            self.warn(
                "the round trip does not check the chat template: the template refuses a question without other "
                f"messages, or each prompt is longer than {longest_prompt(data)} tokens (the context is {context}); "
                "pieces of held-out rows are compared, so look at the template yourself"
            )
        return found

    def trained(self, checkpoint: StoredCheckpoint) -> nn.Module:
        """Return the trained model of a checkpoint, which is the average of versions where the run keeps one."""
        tensors = checkpoint.tensors("parameters", ("average", "parameters"))
        vector = tensors.get("average", tensors["parameters"])
        vector = opened_vector(self.run, self.exchange, vector, self.key_file)
        module = trained_model(self.told.model, self.exchange, vector, self.run.data)
        settings, ends = getattr(module, "generation_config", None), self.ends
        if settings is None:  # it generates nothing
            return module
        settings.eos_token_id = ends.all[0] if len(ends.all) == 1 else ends.all or None
        settings.bos_token_id, settings.pad_token_id = self.dataset.meta.bos_id, ends.pad
        if getattr(module.config, "is_encoder_decoder", False) and settings.decoder_start_token_id is None:
            settings.decoder_start_token_id = start_of(self.dataset.meta)
        return module


def write(
    source: ExportSource, folder: Path, checkpoint: StoredCheckpoint, form: str, kind: str | None, *, round_trip: bool
) -> RoundTrip | None:
    """Write the model of a checkpoint to `folder`; return the result of the round trip, if there was one.

    Only a model that continues texts makes a round trip. Raises InputError for a model that the form cannot hold,
    StorageError, ExportError. After an error the folder is as it was.
    """
    round_trip = round_trip and PROBLEM not in source.told.model
    if form == GGUF:
        return _write_gguf(source, folder, checkpoint, gguf_file.check_type(kind or "f16"), round_trip)
    if form == ADAPTER:
        return _write_adapter(source, folder, checkpoint, round_trip)
    return _write_model(source, folder, checkpoint, round_trip)


def _write_model(source: ExportSource, folder: Path, checkpoint: StoredCheckpoint, check: bool) -> RoundTrip | None:
    module = source.trained(checkpoint)
    written = _written(source, module) if check else []
    with filled(folder, last="config.json", stale=("model*.safetensors*",)) as partial:
        save(partial, merged(module, source.exchange), source.files)
        del module  # one model in memory at a time
        if not check:
            return None
        model, tokenizer = round_trip.load_folder(partial), _tokenizer(source, partial, written)
        return round_trip.check_model(written, model, source.ends, kind=F32, tokenizer=tokenizer)


def _write_adapter(source: ExportSource, folder: Path, checkpoint: StoredCheckpoint, check: bool) -> RoundTrip | None:
    if CATALOG.entry(source.exchange.name.kind).declares.inside:
        raise InputError(f"the run trained the model itself and no adapters; export it as {MODEL}")
    module = source.trained(checkpoint)
    written = _written(source, module) if check else []
    base = str(source.base or source.run.data)
    with filled(folder, last="adapter_config.json", stale=("adapter_model*.safetensors",)) as partial:
        save_adapter(partial, module, base, source.files)
        settings = cast(Any, module).generation_config
        del module
        if not check:
            return None
        from peft import PeftModel

        with folder_of(source.exchange.parts(source.run.data)) as parts:
            model: Any = PeftModel.from_pretrained(cast(Any, load(parts, source.told.model)), str(partial))
        model.generation_config = settings  # an adapter's folder has none
        tokenizer = _tokenizer(source, partial, written)
        return round_trip.check_model(written, model, source.ends, kind=F32, tokenizer=tokenizer)


def _write_gguf(
    source: ExportSource, folder: Path, checkpoint: StoredCheckpoint, kind: str, check: bool
) -> RoundTrip | None:
    gguf_file.require_gguf()
    config, ends = source.told.model, source.ends
    shape = shape_of(config)
    held = replace(ends, stops=tuple(stop for stop in ends.stops if stop != ends.eos)[:1])
    vocabulary = vocabulary_of(source.files, config["vocab_size"], held.stops[0] if held.stops else None)
    if lost := [repr(vocabulary.tokens[stop]) for stop in ends.all if stop not in held.all]:
        source.warn(
            f"a GGUF file names one end of an answer beside that of a text, and the run trained with {1 + len(lost)}: "
            f"{', '.join(lost)} are left out of the file and the round trip; the Modelfile has all as stops, so give "
            "them as stop strings to other programs than Ollama"
        )
    if source.turns is not None and TRAINED in (column.name for column in source.dataset.meta.fields):
        first = vocabulary.tokens[vocabulary.bos] if vocabulary.bos is not None else ""
        begun = source.turns.render([{"role": "user", "content": "?"}]).startswith(first or "\0")
        vocabulary = replace(vocabulary, begins=begun)  # llama.cpp adds it to conversations too
    module = source.trained(checkpoint)
    written = round_trip.written_by(module, source.prompts(), held) if check else []
    module = merged(module, source.exchange)
    name = source.file(kind)
    with filled(folder, last=name, stale=()) as partial:
        path = partial / name
        gguf_file.write_gguf(path, module, config, vocabulary, kind, source.name)
        gguf_file.compare(path, module, config, kind)
        del module
        stops = [vocabulary.tokens[token] for token in ends.all]
        turns = source.turns
        if turns is not None and vocabulary.begins and vocabulary.bos is not None:
            turns = turns.without(vocabulary.tokens[vocabulary.bos])  # llama.cpp adds it
        context = shape.fields(config)["context_length"]
        text = modelfile(name, turns, chat=bool(vocabulary.chat_template), stops=stops, context=int(context))
        (partial / MODELFILE).write_text(text)
        for other, content in source.files.items():
            if other.endswith(".md"):
                (partial / other).write_bytes(content)
        if not check:
            return None
        gguf_file.check_fields(path, config)
        model = round_trip.load_folder(partial, gguf_file=name, config=hugging_face_config(config), dtype=torch.float32)
        model.generation_config.eos_token_id, model.generation_config.pad_token_id = gguf_file.ends_of(path)
        tokenizer = _tokenizer(source, partial, written, gguf_file=name)
        return round_trip.check_model(written, model, held, kind=kind, tokenizer=tokenizer)


def _written(source: ExportSource, module: nn.Module) -> list[Written]:
    return round_trip.written_by(module, source.prompts(), source.ends)


def _tokenizer(source: ExportSource, folder: Path, written: list[Written], **options: Any) -> Any:
    """Return the exported tokenizer, checked; None where the data is no text."""
    prompts = [each.prompt for each in written]
    if not any(prompt.encode for prompt in prompts):
        return None
    tokenizer = round_trip.load_tokenizer(folder, **options)
    round_trip.check_tokenizer(prompts, tokenizer, source.ends)
    return tokenizer
