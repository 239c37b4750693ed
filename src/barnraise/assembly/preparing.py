"""Preparation of a new run: run file, dataset, initial model as checkpoint 0, keys."""

from __future__ import annotations

import shutil
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from barnraise.account.account import MANIFEST
from barnraise.assembly import addresses
from barnraise.config.data_sections import FileData, HeldOut, RowsData, SatData, TextData
from barnraise.config.load import dump
from barnraise.config.site_sections import SiteData
from barnraise.core.errors import StorageError
from barnraise.data.lengths import in_order
from barnraise.ledger import Checkpoints, RunDirectory
from barnraise.models import memory
from barnraise.models.problems import PROBLEM
from barnraise.plan.data_files import held_out_share
from barnraise.plan.data_urls import urls_of
from barnraise.plan.dataset import tokenizer_of
from barnraise.plan.metrics import num_questions
from barnraise.plan.resolve import Plan
from barnraise.transport import Keys


def prepare(plan: Plan, run: RunDirectory, say: Callable[[str], None]) -> None:
    """Fill the folder of a new run.

    Raises DataError, ModelError, StorageError.
    """
    run_file = plan.run_file
    run.write(run.run_file, dump(run_file).encode())
    say("making the dataset")
    make_dataset(plan, run.data, say)
    from barnraise.assembly import parts
    from barnraise.assembly.base_model import named_exchange
    from barnraise.data.lengths import named
    from barnraise.data.shards import Dataset
    from barnraise.models.vectors import digest
    from barnraise.training.problems import problem_of

    dataset = Dataset.open(run.data)
    meta = dataset.meta
    rows = f"{dataset.num_rows:,} rows" if dataset.num_rows else "rows that stay with their owners,"
    say(f"dataset: {rows} of {named(meta.lengths)} tokens, {meta.held_out.rows:,} held out")
    model = parts.model_config(plan, dataset)
    problem_of(model).require(meta)
    exchange = plan.exchange(model, named_exchange(plan, model, run.data))
    tensors = parts.initial_state(plan, model, exchange, run.data)
    trained = f", of which {exchange.trained:,} are trained" if exchange.name.frozen else ""
    say(f"model: {model['model_type']} with {memory.model_size(model):,} parameters{trained}")
    run.write(run.path / MANIFEST, parts.manifest_of(model, dataset, exchange, urls_of(run_file)))
    Checkpoints(run.checkpoints).save(
        0, ledger_id=0, parameters_digest=digest(tensors["parameters"]), state=b"", tensors={"parameters": tensors}
    )
    Keys.load_or_create(run.keys / "controller.json")


@contextmanager
def new_run(plan: Plan, say: Callable[[str], None]) -> Iterator[RunDirectory]:
    """Make the folder of a new run, locked.

    It is deleted if the body ends before the run has ever listened: there is nothing to resume. Raises
    RunDirectoryError.
    """
    run = RunDirectory.create(plan.run_file.run.name, Path(plan.run_file.run.dir))
    with run.lock():
        say(f"run directory {run.path}")
        try:
            yield run
        except BaseException as error:
            if not (run.path / addresses.FILE).exists():
                shutil.rmtree(run.path, ignore_errors=True)
                if isinstance(error, KeyboardInterrupt | CancelledError):
                    say(f"interrupted before the run began; {run.path} is removed again")
                if isinstance(error, StorageError):
                    again = "then start the run again: nothing of it is left"
                    raise StorageError(error.message, again) from error
            raise


def make_dataset(plan: Plan, folder: Path, say: Callable[[str], None] = lambda text: None) -> None:
    """Make the dataset that the run file's data section describes, and tell how many examples are used."""
    run_file = plan.run_file
    data = run_file.data
    if isinstance(data, SatData):
        from barnraise.data.sat import dataset as sat
        from barnraise.plan.dataset import sat_options

        sat.build(folder, sat_options(run_file), say)
    elif isinstance(data, TextData) and _is_plain(data):
        from barnraise.data import text

        text.build(
            folder,
            data.files,
            tokenizer=tokenizer_of(run_file),
            context=data.context,
            held_out=held_out_share(data),
            seed=run_file.run.seed,
            shard_bytes=data.shard_bytes,
            beside=_prompts(plan, data),
        )
    elif isinstance(data, RowsData):
        from barnraise.data import own_rows
        from barnraise.models.problems import named
        from barnraise.training.problem import careful
        from barnraise.training.problems import problem_of

        section = run_file.model
        assert section.problem is not None
        problem = problem_of({PROBLEM: named(section.problem, section.problem_options)})
        with careful(problem):
            rows = problem.rows(run_file.run.seed)
        own_rows.build(folder, problem.form, rows, name=section.problem, seed=run_file.run.seed)
    elif isinstance(data, SiteData):
        from barnraise.data.site_rows import build_form

        tokenizer, seed = tokenizer_of(run_file), run_file.run.seed
        build_form(folder, data.public_held_out, tokenizer=tokenizer, context=data.context, seed=seed)
    else:
        _make_of_examples(plan, data, folder, say)


def _is_plain(data: TextData) -> bool:
    """Return whether the data is whole files of text, and not their records."""
    from barnraise.data.sources import only_text

    return not data.mixture and not isinstance(data.held_out, HeldOut) and only_text(data.files)


def _prompts(plan: Plan, data: TextData) -> dict[str, bytes]:
    """Return the file of the run file's prompts, if it has some."""
    from barnraise.data import tokenizers
    from barnraise.data.questions import QUESTIONS, encoded, prompts_of

    asked = plan.run_file.evaluation.prompts
    if not asked:
        return {}
    coder = tokenizers.load(tokenizer_of(plan.run_file))
    return {QUESTIONS: encoded(prompts_of(asked, coder, in_order(data.context)[-1]))}


def _make_of_examples(plan: Plan, data: FileData, folder: Path, say: Callable[[str], None]) -> None:
    """Make the dataset of the examples in records."""
    from barnraise.data import chats, text
    from barnraise.data.gathering import gather
    from barnraise.data.questions import QUESTIONS, encoded, questions_of
    from barnraise.plan.chats import chat_form

    seed = plan.run_file.run.seed
    examples = gather(data, seed)
    say(f"examples: {examples.counts}")
    sides = examples.training(), examples.held_out()
    if isinstance(data, TextData):
        text.build_of(
            folder,
            *sides,
            tokenizer=tokenizer_of(plan.run_file),
            context=data.context,
            seed=seed,
            shard_bytes=data.shard_bytes,
            beside=_prompts(plan, data),
        )
        return
    form = chat_form(plan.run_file)
    if not form.packed:
        say("each row has one example: a model of this architecture cannot keep several apart")
    left = data.skip_bad - examples.counts.bad
    asked, most = plan.run_file.evaluation.prompts, num_questions(plan.run_file)
    found = encoded(questions_of(examples.held_out(), form, most, asked)) if most or asked else b""
    beside = {QUESTIONS: found} if found else {}
    _, counts = chats.build(folder, form, *sides, skip_bad=left, seed=seed, shard_bytes=data.shard_bytes, beside=beside)
    say(f"training: {counts.text(form.context)}")
