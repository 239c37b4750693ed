"""Time to a loss over slow links: barnraise and what a user would pick instead, against a lone worker.

    python benchmarks/miles_race.py                           as root; all peers, a tiny GPT-2, 10 Mbit/s, 50 ms
    python benchmarks/miles_race.py --peer barnraise --peer diloco --lone 8e6
    python benchmarks/miles_race.py --peer diloco --set diloco.local_steps=60

T is the time in which a lone worker of `--speed` trains `--lone` tokens, its rate falling to a tenth along a cosine.
All others train a multiple of these over all, with the same schedule over theirs, as processes in namespaces behind
the emulated links of `miles_peers.py`, and have until T to reach the lone one's last loss. Each has its own rate, H,
multiple and batch (`TUNED`; `--set` changes one). The lone worker runs as fast as it can, on a clock of `--speed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from _races import At, Known, picture, reached
from miles_peers import ALL, PEERS, Bench, arguments, measure, prepared
from peers.measure import Result
from peers.networks import unlinked
from peers.runs import run_peer

TUNED: dict[str, dict[str, float]] = {
    "lone": {"learning_rate": 0.006, "batch": 8, "excess": 1.0},
    "barnraise": {"learning_rate": 0.011, "local_steps": 3, "excess": 1.45},
    "diloco": {"learning_rate": 0.004, "local_steps": 30, "excess": 2.4},
    "torchft": {"learning_rate": 0.004, "local_steps": 30, "excess": 2.4},
    "hivemind-local": {"learning_rate": 0.008, "local_steps": 150, "excess": 2.0},
    "hivemind-local8": {"learning_rate": 0.008, "local_steps": 150, "excess": 2.0},
    "ddp": {"excess": 1.2},
    "hivemind-sync": {"excess": 1.2},
}
"""Rate, H, batch and tokens of each; `miles.py` looked for ours and DiLoCo's. All else is the command line's."""


def tuned(bench: Bench, name: str) -> Bench:
    """The options of one side: its rate, its H, its tokens."""
    own: dict[str, Any] = dict(TUNED.get(name, {}))
    for peer, option, value in bench.options.set:
        own |= {option: type(getattr(bench.options, option))(value)} if peer == name else {}
    return bench.having(**own, tokens=round(bench.options.lone * own.get("excess", bench.options.excess)))


def given(text: str) -> tuple[str, str, float]:
    """Peer, option and value of a `--set`; ValueError (which argparse tells) for another one."""
    key, _, value = text.partition("=")
    peer, _, option = key.partition(".")
    if peer not in {"lone", *ALL} or option not in {"learning_rate", "local_steps", "batch", "excess"}:
        raise ValueError(text)
    return peer, option, float(value)


def once(bench: Bench, name: str, seed: int) -> Result:
    """Return the side's run, or the stored result of the same run in `--results`."""
    options = bench.options
    settings = (
        "learning_rate",
        "local_steps",
        "batch",
        "tokens",
        "seconds",
        "speed",
        "rate_mbit",
        "rtt_ms",
        "link",
        "data",
    )
    chosen = options.run_file.read_text() if name == "barnraise" else ""
    key = [name, seed, chosen, *(getattr(options, setting) for setting in settings)]
    known = Known(options.results)
    if found := known.get(key, Result):
        return found
    result = lone(bench, seed) if name == "lone" else measure(bench, name, "link", seed)
    if not result.note:
        known.add(key, result)
    return result


def lone(bench: Bench, seed: int) -> Result:
    """Train the model alone, at full speed; the clock is that of a worker of `--speed`."""
    options = bench.options
    trial = replace(bench.trial("lone", "loopback", seed), workers=1, speed=1e9, seconds=1e5)
    with unlinked(1) as spaces:
        result, snapshots = run_peer(next(peer for peer in PEERS if peer.name == "ddp"), trial, spaces)
    result.peer = "lone"
    result.curve = [(tokens / options.speed, tokens, bench.loss(path, seed)) for _, tokens, path in snapshots]
    return result


def race(bench: Bench) -> Iterator[str]:
    """Each peer's time to the lone worker's last loss, as lines of a table."""
    options = bench.options
    pictures: dict[str, Result] = {}
    columns = f"{'loss':>8}{'seconds':>9}{'training':>9}{'MB up':>8}{'MB down':>8}{'CPU':>5}"
    yield f"{'peer':<16}{'seed':>5}{columns}  to lone's loss"
    for seed in range(options.seeds):
        first = once(tuned(bench, "lone"), "lone", seed)
        target, longest = first.curve[-1][2], options.seconds
        yield f"{'lone':<16}{seed:>5}{target:>8.4f}{longest:>9.0f}"
        pictures.setdefault("lone", first)
        for name in options.peer or ALL:
            found = once(tuned(bench, name), name, seed)
            if found.note or not found.curve:
                yield f"{name:<16}{seed:>5} could not be run: {found.note.strip()}"
                continue
            pictures.setdefault(name, found)
            seconds, _, loss = found.curve[-1]
            when = reached(points(found), target)
            told = f"{when[0] / longest:.0%} of its time" if when else "not reached"
            each = 1e6 * found.workers
            yield (
                f"{name:<16}{seed:>5}{loss:>8.4f}{seconds:>9.0f}{found.share:>9.0%}{found.up / each:>8.1f}"
                f"{found.down / each:>8.1f}{found.busy:>5.0%}  {told}"
            )
    if options.pictures:
        curves = {name: points(result) for name, result in pictures.items()}
        picture(options.pictures / "miles-live.png", curves, "seconds")


def points(result: Result) -> list[At]:
    """The curve; bytes grow evenly over a run, and the lone worker sends none."""
    each = (result.up + result.down) / result.curve[-1][1] if result.peer != "lone" else None
    return [At(seconds, tokens, loss, each and each * tokens) for seconds, tokens, loss in result.curve]


def main() -> None:
    parser = arguments(__doc__)
    parser.set_defaults(
        model="tiny", speed=4500.0, local_steps=30, schedule="cosine", learning_rate=0.006, snapshots=20, data="tests",
        run_file=Path(__file__).parent / "peers/overlap.yaml",
    )  # fmt: skip
    parser.add_argument("--lone", type=float, default=3e6, help="tokens of the lone worker")
    parser.add_argument("--excess", type=float, default=1.5, help="tokens of all others over the lone one's")
    parser.add_argument(
        "--set", action="append", default=[], type=given, metavar="PEER.OPTION=VALUE",
        help="learning_rate, local_steps, batch or excess of one peer alone",
    )  # fmt: skip
    parser.add_argument("--pictures", type=Path, help="a folder for the curves")
    options = parser.parse_args()
    if options.quick:
        options.lone = 30_000.0
    options.seconds = options.lone / options.speed
    with prepared(options) as bench:
        for told in race(bench):
            print(told, flush=True)


if __name__ == "__main__":
    main()
