"""A standby's decision to take over, and a controller's to do without one: under random events, and in every partition
of a controller, a standby and two halves of the workers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import pytest

from barnraise.controller.shell.durability import Durability
from barnraise.controller.standby.succession import FRESH, PROMPT, Stage, Succession

LEASE, TICK = 3.0, 0.5
CONTROLLER, STANDBY = "controller", "standby"


def candidate(*workers: str, **owners: str) -> Succession:
    """One that has just become a candidate, where these workers lived."""
    succession = Succession(LEASE)
    assert succession.look(LEASE, complete=True) is Stage.CANDIDATE
    succession.expect({worker: worker for worker in workers} | owners)
    return succession


class TestSuccession:
    def test_silence_alone_confirms_no_standby(self) -> None:
        succession = candidate("a", "b", "c")
        assert {succession.look(LEASE + second, complete=True) for second in range(10_000)} == {Stage.CANDIDATE}

    def test_more_than_half_of_the_living_confirm(self) -> None:
        succession = candidate("a", "b", "c")
        succession.greeted("a", LEASE + 1)
        succession.greeted("a", LEASE + 1)
        assert succession.look(LEASE + 1, complete=True) is Stage.CANDIDATE
        succession.greeted("b", LEASE + 1)
        assert succession.look(LEASE + 1, complete=True) is Stage.CONFIRMED

    def test_exactly_half_do_not(self) -> None:
        succession = candidate("a", "b")
        succession.greeted("a", LEASE)
        assert succession.look(LEASE, complete=True) is Stage.CANDIDATE

    def test_a_lone_worker_is_all(self) -> None:
        succession = candidate("a")
        succession.greeted("a", LEASE)
        assert succession.look(LEASE, complete=True) is Stage.CONFIRMED

    def test_where_none_lived_one_that_is_known_is_enough_and_none_is_not(self) -> None:
        succession = candidate()
        assert succession.look(1000.0, complete=True) is Stage.CANDIDATE
        succession = candidate()
        succession.greeted("late", LEASE + 1)
        assert succession.look(LEASE + 1, complete=True) is Stage.CONFIRMED

    def test_a_worker_that_was_not_there_has_no_say_where_others_were(self) -> None:
        succession = candidate("a")
        succession.greeted("late", LEASE)
        assert succession.look(LEASE, complete=True) is Stage.CANDIDATE

    def test_many_workers_of_one_owner_are_no_majority_of_owners(self) -> None:
        owners = {"x1": "x", "x2": "x", "x3": "x", "a": "a", "b": "b"}
        succession = candidate(**owners)
        for worker in ("x1", "x2", "x3"):
            succession.greeted(worker, LEASE)
        assert succession.look(LEASE, complete=True) is Stage.CANDIDATE
        succession.greeted("a", LEASE)
        assert succession.look(LEASE, complete=True) is Stage.CONFIRMED

    def test_a_controller_that_answers_is_followed_and_greetings_are_forgotten(self) -> None:
        succession = candidate("a", "b", "c")
        succession.greeted("a", LEASE)
        assert succession.look(0.0, complete=True) is Stage.FOLLOWING
        succession.greeted("a", 0.0)
        assert succession.look(LEASE, complete=True) is Stage.CANDIDATE
        succession.greeted("b", LEASE)
        assert succession.look(LEASE, complete=True) is Stage.CANDIDATE

    def test_a_greeting_grows_old(self) -> None:
        succession = candidate("a", "b", "c")
        succession.greeted("a", LEASE)
        succession.look(LEASE + FRESH, complete=True)
        succession.greeted("b", LEASE + FRESH)
        assert succession.look(LEASE + FRESH, complete=True) is Stage.CANDIDATE

    def test_a_late_majority_lasts_for_as_long_as_the_controller_may_have_worked(self) -> None:
        succession, begin = candidate("a"), LEASE + 100.0
        silence = begin
        while succession.look(silence, complete=True) is not Stage.CONFIRMED:
            succession.greeted("a", silence)
            silence += TICK
        assert silence >= begin + 100.0

    def test_a_late_majority_that_returns_restarts_the_count(self) -> None:
        succession, silence = candidate("a"), LEASE + PROMPT + 1.0
        for _ in range(20):
            succession.greeted("a", silence)
            assert succession.look(silence, complete=True) is Stage.CANDIDATE
            silence += FRESH
            assert succession.look(silence, complete=True) is Stage.CANDIDATE
            assert succession.since is None

    def test_workers_that_come_before_the_lease_is_over_wait_for_its_end(self) -> None:
        succession = Succession(LEASE)
        assert succession.look(LEASE / 2, complete=True) is Stage.CANDIDATE
        succession.expect({"a": "a"})
        succession.greeted("a", LEASE / 2)
        assert succession.look(LEASE - TICK, complete=True) is Stage.CANDIDATE
        assert succession.look(LEASE, complete=True) is Stage.CONFIRMED

    def test_the_hosts_word_is_enough_with_a_complete_copy(self) -> None:
        succession = Succession(LEASE)
        succession.told = True
        assert succession.look(0.0, complete=False) is Stage.FOLLOWING
        assert succession.look(0.0, complete=True) is Stage.CONFIRMED

    def test_without_a_complete_copy_it_is_no_candidate(self) -> None:
        assert Succession(LEASE).look(1000.0, complete=False) is Stage.FOLLOWING

    @pytest.mark.parametrize("seed", range(200))
    def test_it_is_confirmed_by_a_fresh_majority_during_silence_and_by_nothing_else(self, seed: int) -> None:
        rng = random.Random(seed)
        owners = {f"w{index}": f"o{rng.randrange(4)}" for index in range(rng.randrange(7))}
        succession, silence, at = Succession(LEASE), 0.0, {}
        rate = rng.choice([0.1, 0.5, 0.9])
        for _ in range(300):
            before = succession.stage
            complete = rng.random() < 0.9
            silence = 0.0 if rng.random() < 0.01 else silence + TICK
            stage = succession.look(silence, complete=complete)
            if stage is Stage.CANDIDATE and before is Stage.FOLLOWING:
                succession.expect(owners)
                at = {}
            if stage is Stage.FOLLOWING:
                at = {}
                assert silence < LEASE / 2 or not complete
            if stage is Stage.CONFIRMED:
                fresh = [worker for worker, when in at.items() if silence - when < FRESH]
                assert silence >= LEASE
                assert before is Stage.CANDIDATE
                assert 2 * len(fresh) > len(owners)
                assert silence <= LEASE + PROMPT or silence - min(at.values()) >= 0.0
                return
            for worker in [*owners, "late"]:
                if rng.random() < rate and stage is Stage.CANDIDATE:
                    succession.greeted(worker, silence)
                    if worker in owners or not owners:
                        at[worker] = silence


class TestDurability:
    def test_it_is_lowered_after_its_patience_and_restored_by_a_complete_standby(self) -> None:
        durability = Durability(True, 30.0, 10.0, ["a", "b"])
        assert not durability.lower(39.0, ["a", "b"])
        assert durability.waits
        assert durability.lower(40.0, ["a"])
        assert not durability.waits
        assert not durability.heard(["a", "b"], complete=False)
        assert not durability.waits
        assert durability.heard(["a", "b"], complete=True)
        assert durability.waits
        assert not durability.lower(1000.0, ["a"])
        durability.alone(1000.0)
        assert not durability.lower(1029.0, ["a"])
        assert durability.lower(1030.0, ["a"])

    def test_not_while_fewer_than_half_of_the_workers_are_here(self) -> None:
        durability = Durability(True, 0.0, 0.0, ["a", "b", "c"])
        assert not durability.lower(1000.0, ["a", "other", "another"])
        assert durability.over(1000.0)
        assert durability.lower(1000.0, ["a", "b"])

    def test_durability_without_waiting_is_never_lowered(self) -> None:
        assert not Durability(False, 0.0, 0.0).lower(1000.0, [])


class World:
    """A controller, its standby and four workers in two halves, with what each knows. Time goes in ticks.

    A worker stays with a controller that it can reach and that answers. It goes to the other one when it has heard
    no controller for a while, as `transport.roaming` does.
    """

    def __init__(self, seed: int, *, wait: bool) -> None:
        self.rng, self.now = random.Random(seed), 0.0
        self.workers = [f"w{index}" for index in range(4)]
        self.groups = {CONTROLLER: 0, STANDBY: 0} | dict.fromkeys(self.workers, 0)
        self.dead: set[str] = set()
        self.at = dict.fromkeys(self.workers, CONTROLLER)
        self.heard = dict.fromkeys(self.workers, 0.0)
        self.patience = {worker: self.rng.uniform(0.5, 1.5) for worker in self.workers}
        self.rows: dict[str, list[int]] = {CONTROLLER: [], STANDBY: []}
        self.held: list[int] = []
        self.acknowledged: dict[int, float] = {}
        self.durability = Durability(wait, PROMPT, self.now)
        self.succession, self.silence = Succession(LEASE), 0.0
        self.follows = True
        self.numbers = itertools.count()
        self.superseded = False

    def cut(self, groups: Sequence[Sequence[str]]) -> None:
        for number, group in enumerate(groups):
            self.groups |= dict.fromkeys(group, number)

    def reach(self, one: str, other: str) -> bool:
        return self.groups[one] == self.groups[other] and not self.dead & {one, other}

    @property
    def confirmed(self) -> bool:
        return self.succession.stage is Stage.CONFIRMED

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += TICK
            self._copy()
            self._work()
            self._decide()
            self._roam()
            self._fence()

    def _copy(self) -> None:
        """The standby follows, or is lost."""
        if not self.confirmed and self.reach(CONTROLLER, STANDBY) and not self.superseded:
            self.rows[STANDBY] = list(self.rows[CONTROLLER])
            self.silence, self.follows = 0.0, True
            self.durability.heard(self.here(), complete=True)
            self._acknowledge()
            return
        self.silence += TICK
        if self.superseded:
            return
        if self.follows and self.silence >= LEASE:
            self.follows = False
            self.durability.alone(self.now)
        if self.durability.lower(self.now, self.here()):
            self._acknowledge()

    def _acknowledge(self) -> None:
        self.acknowledged |= dict.fromkeys(self.held, self.now)
        self.held.clear()

    def here(self) -> list[str]:
        return [w for w in self.workers if self.at[w] == CONTROLLER and self.reach(w, CONTROLLER)]

    def _serving(self, place: str) -> bool:
        return self.confirmed if place == STANDBY else not self.superseded

    def _work(self) -> None:
        """Workers hand something in to the controller that they are with."""
        for worker in self.workers:
            place = self.at[worker]
            if not (self.reach(worker, place) and self._serving(place)):
                continue
            self.heard[worker] = self.now
            number = next(self.numbers)
            self.rows[place].append(number)
            if place == CONTROLLER and self.durability.waits:
                self.held.append(number)
            elif place == CONTROLLER:
                self.acknowledged[number] = self.now

    def _decide(self) -> None:
        before = self.succession.stage
        if STANDBY in self.dead:
            return
        if self.succession.look(self.silence, complete=True) is Stage.CANDIDATE:
            if before is Stage.FOLLOWING:
                self.succession.expect({worker: worker for worker in self.workers})
            for worker in self.workers:
                if self.at[worker] == STANDBY and self.reach(worker, STANDBY):
                    self.succession.greeted(worker, self.silence)

    def _roam(self) -> None:
        for worker in self.workers:
            if self.now - self.heard[worker] > self.patience[worker]:
                self.at[worker] = STANDBY if self.at[worker] == CONTROLLER else CONTROLLER
                self.heard[worker] = self.now
                self.patience[worker] = self.rng.uniform(0.5, 12.0)

    def _fence(self) -> None:
        if self.confirmed and self.reach(CONTROLLER, STANDBY):
            self.superseded = True

    @property
    def lost(self) -> list[int]:
        """Return the rows that were acknowledged, but that the controller that counts does not know."""
        final = self.rows[STANDBY if self.confirmed else CONTROLLER]
        return sorted(set(self.acknowledged) - set(final))


PARTS = (CONTROLLER, STANDBY, "first half", "second half")


def partitions(parts: Sequence[str]) -> Iterator[list[list[str]]]:
    """All ways to divide `parts` into groups."""
    if not parts:
        yield []
        return
    for rest in partitions(parts[1:]):
        yield [[parts[0]], *rest]
        for place in range(len(rest)):
            yield [*rest[:place], [parts[0], *rest[place]], *rest[place + 1 :]]


def members(groups: Sequence[Sequence[str]], world: World) -> list[list[str]]:
    halves = {"first half": world.workers[:2], "second half": world.workers[2:]}
    return [[one for part in group for one in halves.get(part, [part])] for group in groups]


def label(groups: Sequence[Sequence[str]]) -> str:
    return " | ".join(" + ".join(group) for group in groups)


@pytest.mark.parametrize("seconds", [10.0, 40.0, 300.0])
@pytest.mark.parametrize("wait", [False, True], ids=["local", "standby"])
@pytest.mark.parametrize("groups", list(partitions(PARTS)), ids=label)
def test_no_partition_loses_what_was_acknowledged(groups: list[list[str]], wait: bool, seconds: float) -> None:
    for seed in range(5):
        world = World(seed, wait=wait)
        world.run(20.0)
        cut_at = world.now
        world.cut(members(groups, world))
        world.run(seconds)
        with_controller, healed_at = len(world.here()), world.now
        world.cut([[*world.groups]])
        world.run(60.0)
        if wait or with_controller >= 2:
            assert world.lost == []
        for number in world.lost:  # not copied when it was cut, or acknowledged before the old controller heard of it
            at = world.acknowledged[number]
            assert cut_at - TICK <= at <= cut_at + TICK or healed_at <= at <= healed_at + 2 * TICK
        if with_controller >= 2:
            assert not world.confirmed
        apart = next(group for group in groups if STANDBY in group)
        if seconds > PROMPT and CONTROLLER not in apart and len(apart) == 3:
            assert world.confirmed


@pytest.mark.parametrize("wait", [False, True], ids=["local", "standby"])
@pytest.mark.parametrize("seed", range(20))
def test_a_dead_controller_is_replaced_and_loses_no_more_than_what_was_not_copied(seed: int, wait: bool) -> None:
    world = World(seed, wait=wait)
    world.run(20.0)
    died_at = world.now
    world.dead.add(CONTROLLER)
    world.run(30.0)
    assert world.confirmed
    assert all(world.acknowledged[number] > died_at - 2 * TICK for number in world.lost)
    assert not (wait and world.lost)


@pytest.mark.parametrize("seed", range(20))
def test_a_partitioned_standby_and_a_short_outage_do_not_replace_the_controller(seed: int) -> None:
    world = World(seed, wait=False)
    world.run(20.0)
    world.cut([[CONTROLLER, *world.workers], [STANDBY]])
    world.run(120.0)
    world.cut([[CONTROLLER], [STANDBY, *world.workers]])
    world.run(20.0)
    world.cut([[CONTROLLER, *world.workers], [STANDBY]])
    world.run(60.0)
    assert not world.confirmed
    world.cut([[*world.groups]])
    world.run(30.0)
    assert not world.confirmed
    assert world.lost == []


@pytest.mark.parametrize("seed", range(20))
def test_a_minority_that_stays_with_the_controller_is_acknowledged_nothing_where_that_waits(seed: int) -> None:
    world = World(seed, wait=True)
    world.run(20.0)
    world.cut([[CONTROLLER, "w0"], [STANDBY, "w1", "w2", "w3"]])
    world.run(200.0)
    assert world.confirmed
    assert not world.durability.lowered
    world.cut([[*world.groups]])
    world.run(30.0)
    assert world.lost == []
