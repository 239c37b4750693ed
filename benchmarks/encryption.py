"""Measure selective encryption: errors and costs of encrypted sums, the task length that pays, and attacks before it.

    python benchmarks/encryption.py [--parts sums,costs,length,attacks] [--repeats 5] [--trials 100]

*sums*: relative error (2-norm, and the largest) of decrypted sums against float64 sums, for 2, 8 and 32 workers.
*costs*: CPU seconds of one thread and bytes an update of 1e6 values, beside NVFlare's published recipe of full
encryption (its documentation's HEBuilder: poly_modulus_degree 8192, coeff_mod_bit_sizes [60, 40, 40], scale_bits 40),
played with the same TenSEAL. Medians of the repeats with their range, the two sides in turns. *length*: a worker's CPU
seconds to encrypt and decrypt an update of B matrices (LoRA, `train: b_only`), beside its training, and the tokens a
task from which on that is 20% and 5%. *attacks*: the token sets that a host finds in the part that travels in clear,
by the share that is encrypted, on words of the pages under docs/.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from _machine import look

from barnraise.models.exchange.record import Exchange
from barnraise.privacy.encryption import envelope, keys
from barnraise.privacy.encryption.cipher import KeyHolder
from barnraise.privacy.encryption.envelope import Agreement
from barnraise.privacy.encryption.scheme import SumBudget

PARTS = "sums,costs,length,attacks"
MILLION = 1_000_000
WORKERS = (2, 8, 32)
NVFLARE = {"poly_modulus_degree": 8192, "coeff_mod_bit_sizes": [60, 40, 40]}
NVFLARE_SCALE = 2.0**40
MOST_ERROR, SHARES = 1e-4, (0.20, 0.05)
"""Targets: relative error of a sum; shares of training time that encryption may cost."""

GPTS: dict[str, dict[str, Any]] = {
    "6 layers of 256": {"hidden_size": 256, "num_layers": 6, "num_heads": 4},
    "GPT-2 (12 of 768)": {"hidden_size": 768, "num_layers": 12, "num_heads": 12},
}
RANK, CONTEXT = 8, 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=PARTS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    values, models, parts = MILLION, dict(GPTS), options.parts.split(",")
    if options.quick:
        values, options.repeats, options.trials = 20_000, 1, 2
        models = {"2 layers of 32": {"hidden_size": 32, "num_layers": 2, "num_heads": 2}}
    print(look())
    if "sums" in parts:
        tell_sums([values // 10, values])
    if "costs" in parts:
        tell_costs(values, options.repeats)
    if "length" in parts:
        tell_length(models, options.repeats)
    if "attacks" in parts:
        tell_attacks(options.trials)


def holder_of(values: int, parties: int, bound: float) -> tuple[KeyHolder, Agreement]:
    """Return a holder of a fresh key, and its terms."""
    key = keys.make("benchmark")
    agreement = Agreement("benchmark", key.id, SumBudget(parties, bound), (0, values))
    return KeyHolder(key, agreement), agreement


def update_of(values: int, seed: int) -> np.ndarray:
    """Return values with heavy tails as an update has them: normal ones times lognormal ones, float32."""
    rng = np.random.default_rng(seed)
    return (1e-3 * rng.standard_normal(values) * np.exp(rng.standard_normal(values))).astype(np.float32)


def tell_sums(sizes: Sequence[int]) -> None:
    """Print how far decrypted sums are from sums in float64."""
    print(f"\ndecrypted sums beside float64 sums (target: {MOST_ERROR:g}; values 1e-3 N(0, 1) exp(N(0, 1)))")
    print(f"{'values':>9}{'workers':>9}{'2-norm':>11}{'largest error over largest value':>34}")
    for values in sizes:
        for workers in WORKERS:
            rng = np.random.default_rng(workers)
            weights = rng.uniform(0.2, 1.0, workers)
            updates = [update_of(values, seed) for seed in range(workers)]
            holder, agreement = holder_of(values, workers, max(float(np.abs(update).max()) for update in updates))
            sent = (holder.encrypt(update, float(weight)) for update, weight in zip(updates, weights, strict=True))
            total = next(sent)
            for part in sent:
                total = envelope.total([total, part], agreement)
            found = holder.decrypt(total)
            exact = sum(weight * update.astype(np.float64) for weight, update in zip(weights, updates, strict=True))
            error = float(np.linalg.norm(found - exact) / np.linalg.norm(exact))
            largest = float(np.abs(found - exact).max() / np.abs(exact).max())
            print(f"{values:>9,}{workers:>9}{error:>11.1e}{largest:>34.1e}")
            assert error <= MOST_ERROR, "the target is missed"


def seconds_of(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of all threads of this process, and the result."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def tell_costs(values: int, repeats: int) -> None:
    """Print seconds and bytes of an update of our scheme, and of NVFlare's recipe with the same library."""
    taken: dict[tuple[str, str], list[float]] = {}
    sizes: dict[str, int] = {}
    sides = {"barnraise": ours(values), "NVFlare's recipe": theirs(values)}
    for _ in range(repeats):
        for side, steps in sides.items():
            payload: Any = None
            for step, work in steps.items():
                seconds, payload = seconds_of(lambda work=work, payload=payload: work(payload))
                taken.setdefault((side, step), []).append(seconds)
                if step == "encrypt":
                    sizes[side] = len(payload)
    print(f"\nan update of {values:,} values ({4 * values / 1e6:.1f} MB as float32), CPU seconds, {repeats} repeats")
    steps = list(sides["barnraise"])
    print(f"{'':<18}{'MB':>7}{'B/value':>9}" + "".join(f"{step:>23}" for step in steps))
    for side in sides:
        times = [taken[side, step] for step in steps]
        told = "".join(f"{statistics.median(t):>9.3f} ({min(t):.3f}-{max(t):.3f})" for t in times)
        print(f"{side:<18}{sizes[side] / 1e6:>7.1f}{sizes[side] / values:>9.1f}{told}")


def ours(values: int) -> dict[str, Callable[[Any], Any]]:
    """Return the steps of our scheme: a worker encrypts, the host reads and adds, a worker decrypts."""
    update = update_of(values, 0)
    holder, agreement = holder_of(values, 32, float(np.abs(update).max()))
    total = holder.encrypt(update)

    def read(payload: bytes) -> envelope.Ciphertext:
        return envelope.decode(payload, agreement, "ann", fresh=True)

    return {
        "encrypt": lambda _: envelope.encode(holder.encrypt(update)),
        "read": read,
        "add": lambda part: envelope.total([total, part], agreement),
        "decrypt": holder.decrypt,
    }


def theirs(values: int) -> dict[str, Callable[[Any], Any]]:
    """Return the same steps of the published recipe, all values in one TenSEAL vector, by public-key encryption."""
    library = keys.tenseal()
    context = library.context(library.SCHEME_TYPE.CKKS, NVFLARE["poly_modulus_degree"], -1,
                              NVFLARE["coeff_mod_bit_sizes"], n_threads=1)  # fmt: skip
    context.global_scale = NVFLARE_SCALE
    update = update_of(values, 0)
    with quiet():
        total = library.ckks_vector(context, update)

    def encrypt(_: Any) -> bytes:
        with quiet():
            return bytes(library.ckks_vector(context, update).serialize())

    return {
        "encrypt": encrypt,
        "read": lambda payload: library.ckks_vector_from(context, payload),
        "add": lambda part: total + part,
        "decrypt": lambda part: np.array(part.decrypt()),
    }


@contextmanager
def quiet() -> Iterator[None]:
    """Drop a warning that the library prints for vectors of several blocks."""
    sys.stdout.flush()
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


def tell_length(models: dict[str, dict[str, Any]], repeats: int) -> None:
    """Print the tokens of a task from which on encrypting all of a LoRA update costs at most a share of training."""
    print(f"\nLoRA of rank {RANK} on all linear layers, B alone, rows of {CONTEXT} tokens, one thread, CPU seconds")
    print(f"{'model':<20}{'values':>9}{'us/token':>18}{'encrypt':>9}{'decrypt':>9}{'MB':>6}"
          + "".join(f"{f'tokens at {share:.0%}':>15}" for share in SHARES))  # fmt: skip
    for name, sizes in models.items():
        values, training = lora_training(sizes, repeats)
        encrypting, decrypting, size = worker_costs(values, repeats)
        token, both = statistics.median(training), statistics.median(encrypting) + statistics.median(decrypting)
        spread = f"{1e6 * token:.0f} ({1e6 * min(training):.0f}-{1e6 * max(training):.0f})"
        print(f"{name:<20}{values:>9,}{spread:>18}{statistics.median(encrypting):>9.3f}"
              f"{statistics.median(decrypting):>9.3f}{size / 1e6:>6.1f}"
              + "".join(f"{both / share / token:>15,.0f}" for share in SHARES))  # fmt: skip


def worker_costs(values: int, repeats: int) -> tuple[list[float], list[float], int]:
    """Return CPU seconds to encrypt an update and to decrypt a sum, of each repeat, and the bytes of the update."""
    steps = ours(values)
    payload = steps["encrypt"](None)
    encrypting = [seconds_of(lambda: steps["encrypt"](None))[0] for _ in range(repeats)]
    decrypting = [seconds_of(lambda: steps["decrypt"](steps["read"](payload)))[0] for _ in range(repeats)]
    return encrypting, decrypting, len(payload)


def lora_training(sizes: dict[str, Any], repeats: int) -> tuple[int, list[float]]:
    """Return the number of exchanged values, and CPU seconds a token of each step of training beside a base."""
    import torch
    from safetensors.torch import save_model

    from barnraise.core.types import Blob
    from barnraise.models.build import build, build_exchanged
    from barnraise.models.config import describe
    from barnraise.models.exchange.catalog import CATALOG
    from barnraise.training.local import LocalTrainer
    from barnraise.wire.manifest import ExchangeName, FrozenPart

    torch.set_num_threads(1)
    config = describe({"architecture": "gpt2", "config": sizes}, 8192, CONTEXT)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "frozen-model.safetensors")
        save_model(build(config, 0), str(path), metadata={"format": "pt"})
        part = FrozenPart(path.name, Blob("0" * 64, path.stat().st_size))
        options = CATALOG.resolve("lora", {"rank": RANK, "train": "b_only", "base": "float32"})
        exchange = Exchange.of(config, ExchangeName("lora", options, (part,)))
        trainer = LocalTrainer(
            build_exchanged(config, exchange, Path(folder)),
            optimizer="adamw",
            options={"weight_decay": 0.0},
            gradient_clip=None,
        )
        rows = torch.randint(0, 8192, (2, CONTEXT), generator=torch.Generator().manual_seed(1)).numpy()
        batch = {"input_ids": rows, "labels": rows}
        trainer.step(batch, 1e-3)
        steps = [seconds_of(lambda: trainer.step(batch, 1e-3))[0] for _ in range(max(2, repeats))]
    return exchange.layout.size, [seconds / rows.size for seconds in steps]


def tell_attacks(trials: int) -> None:
    """Print the success of attacks on token sets by the parameters that travel encrypted."""
    import torch
    from torch import Tensor

    from barnraise.core.ranges import joined, pieces
    from barnraise.core.types import ParameterRange, Ranges
    from barnraise.models.config import describe
    from barnraise.privacy.attacks.anatomy import layer_inputs, readings
    from barnraise.privacy.attacks.base import AttackTrial
    from barnraise.privacy.attacks.protections import PlainUpdate, Protection
    from barnraise.privacy.attacks.setting import AttackSetting, LocalTraining
    from barnraise.privacy.attacks.statistics import Share
    from barnraise.privacy.attacks.updates.tokens import EmbeddingTokens, QueryTokens, row_space
    from barnraise.privacy.encryption.selection import EMBEDDINGS, choose, sensitivities, share_of, tells_tokens

    class FirstToken(QueryTokens):
        """Names the first word of a row by the second layer's gradient: its input there depends on no other word.

        Once the first word is known, the second can be tried in the same way, and so on (Petrov et al. 2024, 4.2).
        """

        def prepare(self, setting: AttackSetting, rng: np.random.Generator) -> None:
            super().prepare(setting, rng)
            with torch.no_grad():
                alone = torch.arange(setting.vocab_size)[:, None]
                found = layer_inputs(setting.module(), self.anatomy.projections[1], input_ids=alone)[:, 0]
            self.inputs = torch.nn.functional.normalize(found, dim=-1)
            self.likely = int(np.bincount(setting.public[:, 0]).argmax())

        def trial(self, setting: AttackSetting, rng: np.random.Generator) -> AttackTrial:
            members, seen = setting.group(rng)
            basis = row_space(readings(self.anatomy.projections[1], setting.parts(seen)), setting.length)
            found = int(torch.linalg.vector_norm(self.inputs @ basis.T, dim=-1).argmax())
            first = int(members[0][0, 0])
            return AttackTrial(float(found == first), float(self.likely == first))

    class EncryptedPart(Protection):
        """Shows an update without the ranges that travel encrypted."""

        def __init__(self, ranges: Ranges, name: str) -> None:
            self.ranges, self.name = ranges, name

        def seen(self, updates: Sequence[Tensor], rng: np.random.Generator) -> Tensor:
            shown = updates[0].clone()
            for start, stop in pieces(self.ranges):
                shown[start:stop] = 0.0
            return shown

    torch.set_num_threads(1)
    rows, vocabulary = words()
    config = describe(
        {"architecture": "gpt2", "config": {"hidden_size": 64, "num_layers": 4, "num_heads": 4}}, vocabulary, 32
    )

    def setting_of(protection: Protection) -> AttackSetting:
        return AttackSetting(config, rows, LocalTraining(batch_size=1), protection)

    plain = PlainUpdate()
    plain.name = "nothing encrypted"
    setting = setting_of(plain)
    rng = np.random.default_rng(0)
    pairs = [[setting.update(setting.draw_public(rng)).numpy() for _ in range(2)] for _ in range(16)]
    measured = sensitivities((first, second) for first, second in pairs)
    layout = setting.layout

    def of(picked: Callable[[str], bool]) -> Ranges:
        leaves = [leaf for leaf in layout.leaves if picked(leaf.name)]
        return joined(ParameterRange(leaf.offset, leaf.offset + leaf.size) for leaf in leaves)

    def embeds(name: str) -> bool:
        return bool(EMBEDDINGS.intersection(name.split(".")))

    least = share_of(of(tells_tokens), layout)
    selections = {
        "embeddings": of(embeds),
        "first queries, keys, values": of(lambda name: tells_tokens(name) and not embeds(name)),
        "these two": of(tells_tokens),
        "these and 5% by the map": choose(layout, measured, least + 0.05),
    }
    selections["all but the embeddings"] = of(lambda name: not embeds(name))
    selections["all"] = of(lambda name: True)
    protections: list[Protection] = [plain, *(EncryptedPart(ranges, name) for name, ranges in selections.items())]
    print(f"\na row of 32 words, GPT-2 of {layout.size:,} parameters, {trials} trials each; scores are means:")
    print("F1 of the set of words by the embedding, by the first query; share of first words by the second layer")
    print(f"{'encrypted':<30}{'share':>7}{'attack':>17}{'score':>7}{'of control':>12}{'successes (95%)':>20}")
    for protection in protections:
        setting = setting_of(protection)
        share = share_of(selections[protection.name], layout) if protection.name in selections else 0.0
        for attack in (EmbeddingTokens(), QueryTokens(), FirstToken()):
            attack.prepare(setting, np.random.default_rng(1))
            found = [attack.trial(setting, np.random.default_rng([1, number])) for number in range(trials)]
            told = Share.of(sum(trial.score >= 0.9 for trial in found), trials)
            score, control = (
                statistics.fmean(getattr(trial, which) for trial in found) for which in ("score", "control")
            )
            print(
                f"{protection.name:<30}{share:>7.1%}{type(attack).__name__:>17}{score:>7.3f}{control:>12.3f}"
                f"{f'{told.value:.0%} ({told.low:.0%}-{told.high:.0%})':>20}",
                flush=True,
            )


def words(size: int = 2000, length: int = 32) -> tuple[np.ndarray, int]:
    """Return rows of the words of the pages under docs/, the most frequent ones by number, and how many there are."""
    pages = sorted((Path(__file__).parents[1] / "docs").rglob("*.md"))
    found = [word for page in pages for word in re.findall(r"[a-z]+|[.,;:]", page.read_text().lower())]
    number = {word: place for place, (word, _) in enumerate(Counter(found).most_common(size))}
    ids = [number[word] for word in found if word in number]
    return np.array(ids[: len(ids) // length * length]).reshape(-1, length), len(number)


if __name__ == "__main__":
    main()
