"""Measure how fast data becomes rows, and in how much memory.

    python benchmarks/preparation.py                 8 MB of conversations by stage, and 30 MB prepared as a whole
    python benchmarks/preparation.py --whole 1000    1 GB prepared as a whole, which takes hours
    python benchmarks/preparation.py --whole 0       the stages alone
    python benchmarks/preparation.py --only sat      formulas with traces alone

Conversations of the standard library's source are rendered with a ChatML template and encoded with a byte-level BPE of
16,384 tokens that is trained here. For each stage the speed is in MB of content a second of processor time, so that it
does not depend on what else the machine does; the floor is that of the `tokenizers` library, which encodes the rendered
text and does nothing else. A whole preparation runs in a process of its own: from JSONL on the disk to a dataset, with
its wall time, its processor time, and its largest memory without the pages of files.

Formulas of 4 to 6 variables near the threshold are drawn, solved and packed as trails, by one process and by several.
The last figure is for the process that chooses among them and writes the rows: with many cores, it is the limit.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MB = 1_000_000
VOCABULARY = 16_384
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}"
    "{{ message['content'] + '<|im_end|>\n' }}{% endif %}{% endfor %}"
)
CONTEXT = 1024


def source() -> str:
    """Return some MB of text that every machine with Python has."""
    files = sorted(Path(json.__file__).parents[1].glob("*.py"))
    return "".join(path.read_text(errors="ignore") for path in files)


def conversations(text: str, size: int, seed: int = 0) -> Iterator[list[dict[str, str]]]:
    """Yield conversations with about `size` bytes of content in all, of 1.3 kB on average."""
    chance, made = random.Random(seed), 0
    while made < size:
        messages = []
        for role in ("user", "assistant") * chance.randint(1, 3):
            place, length = chance.randrange(len(text) - 4000), 20 + int(chance.expovariate(1 / 300))
            messages.append({"role": role, "content": f"{text[place : place + length]}."})
        made += sum(len(message["content"]) for message in messages)
        yield messages


def make_tokenizer(folder: Path, text: str) -> None:
    """Train and save the tokenizer with its template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "</s>", "<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    backend.train_from_iterator([text[at : at + 2000] for at in range(0, 2 * MB, 2000)], trainer)
    found = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    found.chat_template = TEMPLATE
    found.save_pretrained(folder)


def report(name: str, size: int, work: Callable[[], Any]) -> Any:
    """Run a stage, and print its speed."""
    began, busy = time.perf_counter(), time.process_time()
    found = work()
    took, used = time.perf_counter() - began, time.process_time() - busy
    print(f"  {name:<46} {size / used / MB:7.2f} MB/s of processor time, {size / took / MB:7.2f} MB/s of wall time")
    return found


def stages(folder: Path, size: int) -> None:
    """Print the speed of each stage in this process."""
    from barnraise.data import chats, tokenizers
    from barnraise.data.examples import Example, Origin
    from barnraise.data.packing import pack
    from barnraise.data.rendering import Renderer

    coder: Any = tokenizers.load(folder / "coder")
    renderer = Renderer(coder, chats.template_of(coder, "coder"), "assistant")
    given = [
        Example(source=Origin("made", number), messages=messages)
        for number, messages in enumerate(conversations(source(), size))
    ]
    content = sum(len(message["content"].encode()) for one in given for message in one.messages or [])
    print(f"{content / MB:.1f} MB of content in {len(given):,} conversations")
    texts = report("render with the template (transformers)", content, lambda: [renderer.text(one) for one in given])
    plain = [text.text for text in texts]
    parts = [plain[at : at + 1000] for at in range(0, len(plain), 1000)]
    backend = coder._with_specials
    report(
        "floor: encode, without offsets (tokenizers)",
        content,
        lambda: [backend.encode_batch_fast(part, add_special_tokens=False) for part in parts],
    )
    report(
        "floor: encode, with offsets (tokenizers)",
        content,
        lambda: [backend.encode_batch(part, add_special_tokens=False) for part in parts],
    )
    encoded = report("render, encode and mark what is learnt", content, lambda: list(renderer.encoded(given)))
    cut = [type(one)(one.ids[:CONTEXT], one.trained[:CONTEXT]) for one in encoded]
    rows = report(f"pack into rows of {CONTEXT}", content, lambda: list(pack(cut, CONTEXT, 0)))
    filled = sum(len(one.ids) for one in cut) / sum(part["tokens"].size for part in rows)
    print(f"  {filled:.2%} of the positions of packed rows are filled")


class Memory(threading.Thread):
    """Watches the largest memory of this process, without the pages of files."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.largest, self.ended = 0, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.05):
            lines = Path("/proc/self/status").read_text().splitlines()
            self.largest = max(self.largest, next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")))


def whole(folder: Path, kind: str, tokenizer: str) -> None:
    """Prepare a file in this process, and print what it took as JSON."""
    from barnraise.assembly.preparing import make_dataset
    from barnraise.config.document import Document
    from barnraise.plan.verify import verify

    data = {"kind": kind, "files": [str(folder / f"{kind}.jsonl")], "tokenizer": tokenizer, "context": CONTEXT}
    content = {
        "run": {"name": "prepared", "dir": str(folder)},
        "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
        "data": data,
        "training": {"tokens": 100_000, "batch_size": 4, "local_steps": 2},
        "workers": [{"name": "ann"}],
    }
    plan, _ = verify(Document("prepared", content))
    memory = Memory()
    memory.start()
    began, busy = time.perf_counter(), time.process_time()
    make_dataset(plan, folder / "data")
    took, used = time.perf_counter() - began, time.process_time() - busy
    memory.ended.set()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"wall": took, "processor": used, "memory": memory.largest * 1024, "peak": peak * 1024}))


def sat(folder: Path, tokens: int, processes: int) -> None:
    """Make a dataset of about `tokens` tokens of traces, and print its speed."""
    from barnraise.data.sat import dataset
    from barnraise.data.sat.options import SatOptions

    options = SatOptions.of(
        style="trail", heuristic="lowest", packing=True, context=256, held_out=200, tokens=tokens,
        variables=(4, 6), clause_ratio=(3.5, 5.0), clause_lengths=(3, 3),
        backtracking=[{"at_most": 0, "share": 0.34}, {"at_least": 1, "share": 0.66, "satisfiable": 0.5}],
    )  # fmt: skip
    began, busy, others_busy = time.perf_counter(), time.process_time(), of_others()
    made = dataset.build(folder / f"sat-{processes}", options, processes=processes).num_tokens
    took, used = time.perf_counter() - began, time.process_time() - busy
    print(
        f"sat, {processes} processes: {made / MB:.1f} M tokens in {took:.1f} s, {made / took:,.0f} tokens/s; "
        f"a second of processor time gives {made / (used + of_others() - others_busy):,.0f} tokens, "
        f"one of this process alone {made / used:,.0f}"
    )


def of_others() -> float:
    """Return the processor seconds of the processes that this one started and that have ended."""
    times = resource.getrusage(resource.RUSAGE_CHILDREN)
    return times.ru_utime + times.ru_stime


def write(path: Path, kind: str, text: str, size: int) -> int:
    """Write about `size` bytes of JSONL, and return the file's bytes."""
    with path.open("w") as file:
        for messages in conversations(text, size):
            record = {"messages": messages} if kind == "chat" else {"text": "".join(m["content"] for m in messages)}
            file.write(json.dumps(record) + "\n")
    return path.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="in small: see that it runs")
    parser.add_argument("--stages", type=float, default=8.0, help="MB of content for the stages")
    parser.add_argument("--whole", type=float, default=30.0, help="MB of content for whole preparations (30)")
    parser.add_argument("--sat", type=float, default=8.0, help="million tokens of formulas with traces (8)")
    parser.add_argument("--processes", default="1,2", help="processes that draw formulas, one figure for each (1,2)")
    parser.add_argument("--only", default="chat,text,sat", help="the kinds of data")
    parser.add_argument("--process", nargs=3, metavar=("FOLDER", "KIND", "TOKENIZER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        folder, kind, tokenizer = options.process
        whole(Path(folder), kind, tokenizer)
        return
    if options.quick:
        options.stages, options.whole, options.sat = 0.3, 0.5, 0.1
    kinds = options.only.split(",")
    text = source()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for processes in map(int, options.processes.split(",") if "sat" in kinds else ()):
            sat(folder, int(options.sat * MB), processes)
        if kinds == ["sat"]:
            return
        make_tokenizer(folder / "coder", text)
        if options.stages:
            stages(folder, int(options.stages * MB))
        for kind, tokenizer in (("chat", str(folder / "coder")), ("text", str(folder / "coder")), ("text", "bytes")):
            if not options.whole or kind not in kinds:
                continue
            size = write(folder / f"{kind}.jsonl", kind, text, int(options.whole * MB))
            command = [sys.executable, __file__, "--process", str(folder), kind, tokenizer]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            print(
                f"{kind}, tokenizer {Path(tokenizer).name}: {size / MB:,.1f} MB of JSONL in {found['wall']:,.1f} s, "
                f"{size / found['processor'] / MB:.2f} MB/s of processor time; memory {found['memory'] / MB:,.0f} MB "
                f"(with pages of files {found['peak'] / MB:,.0f} MB)"
            )


if __name__ == "__main__":
    main()
