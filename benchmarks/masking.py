"""Measure the costs of masks: worker, trustees and controller, shares and bytes beside unmasked values.

    python benchmarks/masking.py

One million values on one thread, in CPU time of the thread: medians of `REPEATS` with the least and the most. A worker
quantises, draws and adds its seeds, seals, packs and signs. A trustee checks and opens all shares twice (to endorse, to
release), expands what it sends and what it confirms, packs and hashes it; times are those of the busiest trustee and
of all. The controller checks and adds all updates, checks endorsements, hashes what arrives, takes it off and decodes.
"A parameter" is the time of all processes for one update, by its values. Peak memory is that of the Python
process in a run of its own (tracemalloc), without the updates or sums that arrive in messages. Every run checks that
the sum is exactly that of the unmasked ring.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import _machine
import numpy as np

from barnraise.privacy.masking.committee import Committee, Portion, TrusteeKeys
from barnraise.privacy.masking.lists import MemberList, entry_of
from barnraise.privacy.masking.payload import MaskedUpdate, UpdateOrigin, mask, parse, plain
from barnraise.privacy.masking.ring import Ring
from barnraise.privacy.masking.sealing import SealingKey
from barnraise.privacy.masking.sums import GroupSums, expanded, sums_digest
from barnraise.privacy.masking.terms import MaskTerms
from barnraise.privacy.masking.trustee import Endorsement, Expansion, TrusteeMachine, TrusteeSettings
from barnraise.trust.signatures import RunId, Signer

SIZE, REPEATS = 1_000_000, 3
MODEL = "00" * 32
SHAPES = [(4, 1), (8, 1), (8, 2)]
WORKERS = [32, 64]


@dataclass
class Times:
    """CPU seconds by the process that spent them, one entry a repeat."""

    worker: list[float] = field(default_factory=list)
    busiest: list[float] = field(default_factory=list)
    trustees: list[float] = field(default_factory=list)
    controller: list[float] = field(default_factory=list)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.thread_time()
    made = work()
    return time.thread_time() - began, made


def peak(work: Callable[[], Any]) -> float:
    """MiB that `work` allocates at most."""
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most / 2**20


class Club:
    """Members, trustees and terms of one shape."""

    def __init__(self, size: int, workers: int, shape: tuple[int, int], value_bits: int) -> None:
        m, t = shape
        self.signers = [Signer(bytes([1, *[n] * 31])) for n in range(m)]
        self.sealing = [SealingKey(bytes([2, *[n] * 31])) for n in range(m)]
        self.members = [Signer(bytes([3, *[n] * 31])) for n in range(workers)]
        keys = zip(self.signers, self.sealing, strict=True)
        trustees = tuple(TrusteeKeys(f"t{n}", one.public, two.public) for n, (one, two) in enumerate(keys))
        self.committee = Committee(trustees, t)
        run = RunId("bench", "k" * 40)
        self.terms = MaskTerms(run, Ring(value_bits, workers, 1.0), size, self.committee)
        generator = np.random.default_rng(0)
        self.values = generator.normal(0, 0.2, size).astype(np.float32)

    def words(self, number: int) -> Any:
        ring = self.terms.ring
        return ring.quantise(np.roll(self.values, 1000 * number), ring.most_weight, number.to_bytes(32, "big"))

    def origin(self, number: int) -> UpdateOrigin:
        return UpdateOrigin(f"n{number}", number, 0, MODEL)

    def payload(self, number: int) -> bytes:
        """Do the work of one worker for one update."""
        return mask(self.terms, self.origin(number), self.words(number), self.members[number])

    def listed(self, updates: list[MaskedUpdate]) -> MemberList:
        return MemberList(
            run=self.terms.run,
            version=1,
            model=MODEL,
            nonce="00" * 32,
            terms=self.terms.digest,
            support=0,
            group=0,
            entries=tuple(entry_of(one, self.origin(n)) for n, one in enumerate(updates)),
        )

    def trustee(self, number: int) -> TrusteeMachine:
        roster = {f"n{n}": one.public for n, one in enumerate(self.members)}
        settings = TrusteeSettings(
            number=number,
            signer=self.signers[number],
            sealing=self.sealing[number],
            terms=self.terms,
            roster=roster,
            least_members=2,
        )
        return TrusteeMachine(settings, [].append)


def release(
    club: Club, machine: TrusteeMachine, members: MemberList, shares: list[bytes], signed: dict[str, str]
) -> Any:
    """Do the work of one trustee for one list: the sums that it sends, and the digests that it confirms."""
    number, width = machine.settings.number, club.committee.collude + 1
    portions = [one for one in club.committee.portions(range(club.committee.size)) if number in one.knowers[:width]]
    work = machine.give(members, shares, signed, [one.seeds for one in portions])
    assert isinstance(work, Expansion)
    sent, confirmed = dict[Portion, bytes](), dict[Portion, str]()
    for portion, sums in zip(portions, expanded(work), strict=True):
        if portion.knowers[0] == number:
            sent[portion] = b"".join(sums)
        else:
            confirmed[portion] = sums_digest(sums)
    return sent, confirmed


def admit(club: Club, payloads: list[bytes]) -> tuple[list[MaskedUpdate], GroupSums]:
    """Do the work of the controller with updates as they arrive."""
    sums = GroupSums(club.terms, [range(len(payloads))])
    updates = []
    for number, payload in enumerate(payloads):
        update = parse(payload, club.terms)
        assert not update.refuse_signature(club.origin(number), club.members[number].public)
        sums.add(number, update)
        updates.append(update)
    return updates, sums


def finish(
    club: Club, sums: GroupSums, signed: dict[str, str], members: MemberList, sent: dict[Any, Any], told: dict[Any, Any]
) -> Any:
    """Do the work of the controller once trustees answered."""
    assert len(members.endorsers(signed, club.committee)) == club.committee.size
    for portion, packed in sent.items():
        assert sums_digest([packed]) == told[portion]
        sums.subtract(packed)
    (mean,) = sums.means()
    return mean


def play(club: Club, workers: int, times: Times) -> None:
    """One list, from updates to the mean, with its times."""
    made = [timed(lambda number=number: club.payload(number)) for number in range(workers)]  # type: ignore[misc]
    times.worker.append(statistics.median(seconds for seconds, _ in made))
    received, (updates, sums) = timed(lambda: admit(club, [payload for _, payload in made]))
    members = club.listed(updates)
    machines = [club.trustee(number) for number in range(club.committee.size)]
    shares = [[one.shares[number] for one in updates] for number in range(club.committee.size)]
    spent, signed, sent, told = [], dict[str, str](), dict[Any, Any](), dict[Any, Any]()
    for machine, own in zip(machines, shares, strict=True):
        seconds, answer = timed(lambda machine=machine, own=own: machine.endorse(members, own))  # type: ignore[misc]
        assert isinstance(answer, Endorsement)
        signed[answer.trustee] = answer.signature
        spent.append(seconds)
    for number, (machine, own) in enumerate(zip(machines, shares, strict=True)):
        seconds, (some, confirmed) = timed(
            lambda machine=machine, own=own: release(club, machine, members, own, signed)
        )  # type: ignore[misc]
        spent[number] += seconds
        sent |= some
        told |= confirmed
    finished, mean = timed(lambda: finish(club, sums, signed, members, sent, told))
    times.busiest.append(max(spent))
    times.trustees.append(sum(spent))
    times.controller.append(received + finished)
    check(club, workers, mean)


def check(club: Club, workers: int, mean: Any) -> None:
    """The unmasked ring gives the same mean, bit for bit."""
    without = replace(club.terms, committee=None)
    sums = GroupSums(without, [range(workers)])
    for number in range(workers):
        sums.add(number, parse(plain(without, club.words(number)), without))
    (expected,) = sums.means()
    assert np.array_equal(mean[0].view(np.uint32), expected[0].view(np.uint32))  # type: ignore[union-attr]


def memory(club: Club, workers: int) -> tuple[float, float, float]:
    """Peak MiB of a worker, of a trustee and of the controller."""
    payloads = [club.payload(number) for number in range(workers)]
    updates, _ = admit(club, payloads)
    members, shares = club.listed(updates), [one.shares[0] for one in updates]
    signed = {}
    for number in range(club.committee.size):
        answer = club.trustee(number).endorse(members, [one.shares[number] for one in updates])
        signed[answer.trustee] = answer.signature  # type: ignore[union-attr]
    worker = peak(lambda: club.payload(0))
    trustee = peak(lambda: release(club, club.trustee(0), members, shares, signed))
    return worker, trustee, peak(lambda: admit(club, payloads)[1].means())


def told(values: list[float]) -> str:
    """Milliseconds: the median, and the range."""
    low, middle, high = (1000 * each(values) for each in (min, statistics.median, max))
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    parser.add_argument("--value-bits", type=int, default=10)
    given = parser.parse_args()
    size, repeats = (SIZE // 50, 1) if given.quick else (SIZE, REPEATS)
    print(f"{_machine.look()}; {size:,} values of {given.value_bits} bits, {repeats} repeats, ms of one core")
    print("| workers | m, t | worker | busiest trustee | all trustees | controller | ns a parameter | MiB: w, t, c |")
    print("|---|---|---|---|---|---|---|---|")
    for workers in WORKERS:
        for shape in SHAPES:
            club, times = Club(size, workers, shape, given.value_bits), Times()
            for _ in range(repeats):
                play(club, workers, times)
            middle = [statistics.median(one) for one in (times.worker, times.trustees, times.controller)]
            each = 1e9 / size * (middle[0] + (middle[1] + middle[2]) / workers)
            parts = [told(one) for one in (times.worker, times.busiest, times.trustees, times.controller)]
            peaks = ", ".join(f"{one:.0f}" for one in memory(club, workers))
            print(f"| {workers} | {shape[0]}, {shape[1]} | {' | '.join(parts)} | {each:.1f} | {peaks} |", flush=True)
    print("\n| value bits | members of a sum | m, t | ring bits | share bytes | payload bytes | of packed values |")
    print("|---|---|---|---|---|---|---|")
    for bits in (8, 10, 12, 16):
        for members, shape in [(2, (4, 1)), (32, (4, 1)), (64, (4, 1)), (64, (8, 1)), (64, (8, 2))]:
            terms = replace(Club(1, 1, shape, bits).terms, ring=Ring(bits, members, 1.0), size=size)
            ratio = terms.payload_bytes / (size * bits / 8)
            print(
                f"| {bits} | {members} | {shape[0]}, {shape[1]} | {terms.ring.bits} | {terms.share_bytes:,} "
                f"| {terms.payload_bytes:,} | {ratio:.3f} |"
            )


if __name__ == "__main__":
    main()
