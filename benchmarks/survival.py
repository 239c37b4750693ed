"""Measure a run while machines fail: a lab of eight workers, and a fault every 15 s of ten minutes.

    sudo python benchmarks/survival.py
    python benchmarks/survival.py --simulated 5_000_000 --seconds 240 --seeds 5

All kinds of faults take turns (docs/guides/faults.md; `--seconds 150` has the first nine of them), on real processes
behind links of 20 Mbit/s and 20 ms that a packet emulator plays. Then the same run without faults, to as many tokens.
Needs root, iproute2 and /dev/net/tun.

Printed: whether the machine was idle; *availability*, the share of seconds in which a contribution was accepted and a
version was made (other decisions do not count, and nothing is forgiven: the run without faults is printed beside it);
*next step*, from a fault until the run's next version, which is what other systems call recovery; *pause*, from the
fault until the run's next accepted contribution; *recovery*, from a fault of a node until it has submitted all that it
had begun or the work runs elsewhere; *throughput*, tokens that the others bring in ten seconds from such a fault on,
over what they brought in the fifteen before it; and the loss at equal tokens, of which one pair of runs tells little:
`--seeds` plays several, and `--simulated` compares simulations that train, with the same workers, links and faults,
without root.

All workers share this machine's cores, and each takes a tenth of what one could do: a worker that is gone should not
make the others faster. Starts of new ones take seconds of a core all the same.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _machine
from _availability import Availability, availability, is_contribution, until_accepted, until_step

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.emulation import namespaces
from barnraise.ledger.decisions import Assigned, Judged, Noted
from barnraise.ledger.view import LedgerView
from barnraise.plan import Purpose, resolve

BARNRAISE = [sys.executable, "-m", "barnraise.cli.main"]
EVERY, FIRST = 15.0, 20.0
"""Seconds between faults, and to the first."""

RATE, DELAY = "20mbit", "20ms"
TOKENS_PER_SECOND = 4300.0
"""Tokens a second of a worker of the lab, as it was measured once; simulated workers are as fast."""

WINDOW, BEFORE = 10.0, 15.0
JUMP = 8.0
PUBLISHED = [
    ("torchft 0.1, kill to next step, measured on such a machine (compare: next step)", "5.0 s"),
    ("hivemind 1.1, the same", "30.2 s"),
    ("torchft's own figures: heartbeat that is missed, time to join", "5 s, 60 s"),
    ("hivemind's own: until an averaging round gives up a peer", "a minute or two"),
    ("goodput under failures, decoupled DiLoCo against synchronous (simulated)", "88% against 27%"),
]
LINK = {"seconds": 6.0}
ROUND: list[tuple[str, dict[str, Any]]] = [
    ("kill", {}),
    ("partition", LINK),
    ("corrupt", LINK | {"share": 0.02}),
    ("hang", {"seconds": 8.0}),
    ("slow_disk", {"seconds": 5.0, "by_seconds": 0.1}),
    ("one_way_loss", LINK | {"way": "up"}),
    ("preempt", {"seconds": 10.0}),
    ("kill_controller", {"seconds": 1.0}),
    ("duplicate", LINK | {"share": 0.3}),
    ("one_way_loss", LINK | {"way": "down"}),
    ("full_disk", {"seconds": 3.0}),
    ("reorder", LINK | {"share": 0.3}),
    ("clock_jump", {"by_seconds": JUMP}),
]
HOSTS = {"slow_disk", "full_disk", "clock_jump", "kill_controller"}


def plan(seconds: float, workers: int) -> list[dict[str, Any]]:
    """Return the faults of `seconds` seconds. Another machine replaces a dead one two seconds later."""
    pacer = {"at_seconds": 0.0, "do": "kill", "node": "pacer"}
    found, living, joined, ahead = [pacer], [f"w{number}" for number in range(1, workers + 1)], workers, 0.0
    for number in range(int((seconds - FIRST) / EVERY) + 1):
        name, operands = ROUND[number % len(ROUND)]
        at = FIRST + EVERY * number + ahead
        fault: dict[str, Any] = {"at_seconds": at, "do": name, **operands}
        if name not in HOSTS:
            fault["node"] = victim = living[(3 * number) % len(living)]
            if name in ("kill", "preempt"):
                joined += 1
                living[living.index(victim)] = f"w{joined}"
                found.append({"at_seconds": at + 2.0, "join": {"name": f"w{joined}", "speed": 1.0}})
        ahead += JUMP if name == "clock_jump" else 0.0  # times are the run's
        found.append(fault)
    return found


def run_file(folder: Path, workers: int, faults: list[dict[str, Any]], seed: int) -> Path:
    (folder / "text.txt").write_text("".join(f"{a} times {b} is {a * b}.\n" for a in range(150) for b in range(150)))
    names = [{"name": "pacer", "speed": 10.0}, *({"name": f"w{i}", "speed": 1.0} for i in range(1, workers + 1))]
    content = {
        "run": {"name": "survival", "dir": str(folder / "runs"), "seed": seed},
        "model": {"architecture": "gpt2", "config": {"hidden_size": 32, "num_layers": 2, "num_heads": 2}},
        "data": {"kind": "text", "files": [str(folder / "text.txt")], "context": 64},
        "training": {"tokens": 10**9, "batch_size": 4, "local_steps": 12, "learning_rate": 0.002},
        "controller": {"evaluations": 1, "evaluation_rows": 256, "checkpoint_seconds": 5.0},
        "workers": names,
        "faults": faults,
    }
    path = folder / "run.yaml"
    path.write_text(json.dumps(content))
    return path


@dataclass
class Record:
    """The observations of a run, by the wall clock."""

    decisions: list[tuple[float, Any]] = field(default_factory=list)
    faults: list[tuple[float, str, str]] = field(default_factory=list)  # when, what, to whom
    ended: dict[str, Any] = field(default_factory=dict)
    until: float = 0.0  # when it was watched last

    @property
    def accepted(self) -> Iterator[tuple[float, Judged]]:
        for at, decision in self.decisions:
            if is_contribution(decision):
                yield at, decision

    @property
    def availability(self) -> Availability:
        return availability(self.decisions, self.until)

    @property
    def tokens(self) -> int:
        return sum(decision.tokens for _, decision in self.accepted)


def watch(folder: Path, file: Path, over: Callable[[Record], bool]) -> Record:
    """Run a lab until `over` holds for the observations; then finish it early."""
    found, log, out = Record(), folder / "lab.log", folder / "lab.out"
    with log.open("wb") as errors, out.open("wb") as results:
        command = [*BARNRAISE, "lab", str(file), "--network", f"{RATE}/{DELAY}", "--json"]
        lab = subprocess.Popen(command, stdout=results, stderr=errors)
    try:
        run = None
        while run is None or not (run / "ledger.sqlite").exists():
            time.sleep(0.2)
            if lab.poll() is not None:
                raise SystemExit(log.read_text())
            told = re.search(r"run directory (\S+)", log.read_text())
            run = Path(told[1]) if told else None
        time.sleep(1.0)
        with LedgerView(run / "ledger.sqlite") as view:
            last = read = 0
            while not over(found):
                time.sleep(0.05)
                now = time.monotonic()
                new = list(view.replay(last))
                last = new[-1][0] if new else last
                found.decisions += [(now, decision) for _, decision in new]
                found.until = now
                text = log.read_bytes()
                for line in text[read:].decode("utf-8", "replace").splitlines():
                    if fault := re.match(r"fault: (\w+)(?: worker '(\w+)')? at ", line):
                        found.faults.append((now, fault[1], fault[2] or ""))
                read = len(text)
                if lab.poll() is not None:
                    raise SystemExit(f"the lab ended:\n{text.decode('utf-8', 'replace')[-3000:]}")
        subprocess.run([*BARNRAISE, "finish", str(run)], check=True, capture_output=True)
        lab.wait(180)
        found.ended = json.loads(out.read_text().splitlines()[-1])
    finally:
        if lab.poll() is None:
            lab.terminate()
            lab.wait(60)
    return found


def recovery(record: Record, at: float, node: str) -> float | None:
    """Seconds until what the node had in hand is here, or runs elsewhere; None when it had nothing."""
    held: set[int] = set()
    until = 0.0
    for when, decision in record.decisions:
        number = getattr(decision, "assignment", 0)
        if when <= at:
            if isinstance(decision, Assigned) and decision.node == node:
                held.add(number)
            elif isinstance(decision, Judged) or (isinstance(decision, Noted) and decision.kind == "released"):
                held.discard(number or getattr(getattr(decision, "note", None), "assignment", 0))
            if isinstance(decision, Assigned):
                held.discard(decision.redo)
        elif held:
            done = decision.redo if isinstance(decision, Assigned) else number if isinstance(decision, Judged) else 0
            if done in held:
                held.discard(done)
                until = when - at
        if when > at and not held:
            return until or None
    return None


def throughput(record: Record, at: float, node: str) -> tuple[float, float]:
    """Tokens a second of the others from then on, and before."""
    after = before = 0
    known = {decision.node for when, decision in record.accepted if at - BEFORE <= when <= at} - {node}
    for when, decision in record.accepted:
        if decision.node in known:
            after += decision.tokens * (at < when <= at + WINDOW)
            before += decision.tokens * (at - BEFORE < when <= at)
    return after / WINDOW, before / BEFORE


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def tell(record: Record, plain: Record) -> None:
    found, decisions = record.availability, record.decisions
    ends = record.until - WINDOW  # the run ended before the consequences of a later fault
    faults = [fault for fault in record.faults if fault[2] != "pacer" and found.begin <= fault[0] <= ends]
    print(f"{found.seconds} s, {len(faults)} faults, a fault every {found.seconds / max(1, len(faults)):.1f} s (MTBF)")
    tell_availability(record, plain)
    for at in (at for at, name, _ in faults if name == "kill_controller"):
        print(
            f"a killed controller: work is accepted after {until_accepted(decisions, at):.1f} s, the next step of the "
            f"fleet is made after {until_step(decisions, at):.1f} s; 1 s of it is planned"
        )
    print("\nfaults of one node       n    next step p50    max   pause p50    max   recovery p50    max   (s)")
    kinds = sorted({name for _, name, node in faults if node})
    every: list[float] = []
    for name in [*kinds, "all"]:
        chosen = [(at, node) for at, kind, node in faults if node and name in (kind, "all")]
        every = [one for at, node in chosen if (one := recovery(record, at, node)) is not None]
        columns = [until_step(decisions, at) for at, _ in chosen], [until_accepted(decisions, at) for at, _ in chosen]
        figures = [f"{quantile(column, 0.5):9.2f} {quantile(column, 1.0):6.2f}" for column in (*columns, every)]
        print(f"  {name:<18} {len(chosen):6}   {'   '.join(figures)}")
    print(f"MTTR {statistics.mean(every) if every else 0:.2f} s; recoveries in:")
    for low, high in ((0, 0.5), (0.5, 1), (1, 2), (2, 5), (5, 10), (10, 1e9)):
        count = sum(low <= one < high for one in every)
        print(f"  {low:>4} to {high if high < 1e9 else '...':>4} s  {count:4}  {'#' * count}")
    pairs = [throughput(record, at, node) for at, _, node in faults if node]
    rates = sum(after for after, _ in pairs), sum(before for _, before in pairs)
    print(
        f"\nthroughput of the others during recovery     {rates[0] / max(1.0, rates[1]):8.1%}  of what they gave before"
    )
    loss, other = record.ended["final_loss"], plain.ended["final_loss"]
    print(f"loss {loss:.4f} at {record.ended['tokens']:,} tokens, {record.tokens / found.seconds:,.0f} tokens/s")
    print(f"without faults {other:.4f} at {plain.ended['tokens']:,}: {loss / other - 1:+.2%}", flush=True)


def tell_availability(record: Record, plain: Record) -> None:
    """Print the availability of a run with faults: a lost second counts for the kind of the last fault before it."""
    found, alone = record.availability, plain.availability
    ours = 0
    for second in found.lost:
        earlier = [name for at, name, node in record.faults if node != "pacer" and at <= second + 1.0]
        ours += bool(earlier) and earlier[-1] in HOSTS
    without = 1.0 - (len(found.lost) - ours) / found.seconds
    print(f"available, but for the controller's own faults   {without:7.2%} of seconds")
    for run, whose in ((found, "with all faults"), (alone, "without any fault")):
        print(
            f"available {whose:<38} {run.share(run.available):7.2%}; work accepted in {run.share(run.accepting):.2%}, "
            f"a version made in {run.share(run.moving):.2%}; without accepted work for {run.longest_wait:.1f} s at most"
        )


def tell_losses(pairs: list[tuple[Record, Record]]) -> None:
    """Print the losses of all pairs of runs, with and without faults, to as many tokens."""
    differences = [record.ended["final_loss"] / plain.ended["final_loss"] - 1 for record, plain in pairs]
    spread = statistics.stdev(differences) if len(differences) > 1 else float("nan")
    print(
        f"\nloss with faults over that without, {len(pairs)} pairs: mean {statistics.mean(differences):+.2%}, ", end=""
    )
    print(f"standard deviation {spread:.2%} ({', '.join(f'{one:+.2%}' for one in differences)})")


def tell_simulated(seconds: float, workers: int, seeds: int, tokens: int) -> None:
    """Losses of pairs of simulations that train, with the same faults and without any."""
    ratios = []
    for seed in range(seeds):
        losses = [simulated(seconds if faults else 0.0, workers, seed, tokens) for faults in (True, False)]
        ratios.append(losses[0] / losses[1] - 1)
        print(f"seed {seed}: {losses[0]:.4f} with faults, {losses[1]:.4f} without: {ratios[-1]:+.2%}", flush=True)
    spread = statistics.stdev(ratios) if seeds > 1 else math.nan
    print(
        f"after {tokens:,} tokens, {seeds} pairs: mean {statistics.mean(ratios):+.2%}, standard deviation {spread:.2%}"
    )


def simulated(seconds: float, workers: int, seed: int, tokens: int) -> float:
    """Return the loss after `tokens` tokens, with the faults of `seconds` seconds."""
    link = {"link": f"{RATE}/{DELAY}"}
    faults = [fault for fault in plan(seconds, workers) if fault.get("node") != "pacer"]
    for fault in faults:
        if "join" in fault:
            fault["join"] |= link
    with tempfile.TemporaryDirectory() as name:
        content = json.loads(run_file(Path(name), workers, faults if seconds else [], seed).read_text())
        content["workers"] = [worker | link for worker in content["workers"] if worker["name"] != "pacer"]
        content["training"]["tokens"] = tokens
        content["controller"]["threads"] = 1
        run = resolve(load(content), purpose=Purpose.SIMULATE, nodes=workers)
        report = simulate(run, Trial(workers, seed=seed, real=True, tokens_per_second=TOKENS_PER_SECOND))
    assert report.losses.final_loss is not None
    return report.losses.final_loss


def tell_others() -> None:
    print("\nelsewhere:")
    for what, figure in PUBLISHED:
        print(f"  {figure:>16}  {what}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    parser.add_argument("--seeds", type=int, default=1, help="pairs of runs")
    parser.add_argument("--simulated", type=int, default=0, help="compare losses of simulations, after so many tokens")
    parser.add_argument("--keep", type=Path, help="a folder for the runs, which stay there")
    options = parser.parse_args()
    if options.simulated:
        tell_simulated(options.seconds, options.workers, options.seeds, options.simulated)
        return
    if lack := namespaces.missing():
        print(f"no lab here: {lack}")
        return
    seconds, workers = (38.0, 2) if options.quick else (options.seconds, options.workers)
    print(before := _machine.look(), flush=True)
    pairs: list[tuple[Record, Record]] = []
    with tempfile.TemporaryDirectory() as name:
        for seed in range(options.seeds):
            pairs.append(pair((options.keep or Path(name)) / f"{seed}", seconds, workers, seed))
            tell(*pairs[-1])
    tell_losses(pairs)
    print(f"\nbefore: {before}\nafter:  {_machine.look()}")
    tell_others()


def pair(folder: Path, seconds: float, workers: int, seed: int) -> tuple[Record, Record]:
    """A run with faults, and one without to as many tokens."""

    def elapsed(record: Record) -> bool:
        first = next((at for at, _ in record.accepted), None)
        return first is not None and time.monotonic() - first > seconds

    (folder / "plain").mkdir(parents=True, exist_ok=True)
    troubled = watch(folder, run_file(folder, workers, plan(seconds, workers), seed), elapsed)
    pacer = plan(0.0, workers)[:1]
    other = run_file(folder / "plain", workers, pacer, seed)
    return troubled, watch(folder / "plain", other, lambda record: record.tokens >= troubled.tokens)


if __name__ == "__main__":
    main()
