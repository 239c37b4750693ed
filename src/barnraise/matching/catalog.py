"""The schedulers by name."""

from __future__ import annotations

from dataclasses import dataclass

from barnraise.core.registry import Catalog, Entry, Option

SPEED = Option(
    "default_speed",
    float,
    1000.0,
    "tokens a second assumed of a node whose speed is not measured yet",
    minimum=1e-3,
    maximum=1e15,
)
BANDWIDTH = Option(
    "default_bandwidth",
    float,
    1.25e6,
    "bytes a second assumed of a link that is not measured yet",
    minimum=1e-3,
    maximum=1e15,
)
SEED = Option("seed", int, 0, "seed of random choices: the same seed, the same choices", minimum=0, maximum=2**63 - 1)


@dataclass(frozen=True)
class SchedulerTraits:
    """Properties that an entry declares: whether its scheduler keeps a standing market of nodes and tasks."""

    keeps_market: bool = False


CATALOG = Catalog(
    "scheduler",
    "barnraise.matching",
    [
        Entry("fifo", "barnraise.matching.fifo:Fifo", "the oldest task to the node that asked first"),
        Entry("priority", "barnraise.matching.priority:Priority", "the most urgent task first, then the oldest"),
        Entry("capability", "barnraise.matching.capability:Capability", "the largest task to the fastest node"),
        Entry(
            "round_robin",
            "barnraise.matching.round_robin:RoundRobin",
            "the oldest task to the node whose turn it is",
            aliases=("round-robin",),
        ),
        Entry("random", "barnraise.matching.shuffle:Random", "any task to any node that can run it", options=(SEED,)),
        Entry(
            "greedy",
            "barnraise.matching.greedy:Greedy",
            "the pair that is done soonest first",
            options=(SPEED, BANDWIDTH),
        ),
        Entry(
            "htcondor",
            "barnraise.matching.htcondor:HTCondor",
            "one pass by priority, each task to the fastest node where both sides' requirements are met",
        ),
        Entry(
            "swarm",
            "barnraise.matching.swarm:Swarm",
            "the oldest task to the node with the least accumulated expected runtime",
            options=(
                Option("smoothing", float, 0.1, "weight of the newest measured speed", minimum=1e-6, maximum=1.0),
                SPEED,
            ),
        ),
        Entry(
            "dt_fm",
            "barnraise.matching.dt_fm:DTFM",
            "a genetic search for the least total time, for up to some thousands",
            options=(
                Option("generations", int, 100, "children that are tried", minimum=0, maximum=100_000),
                Option("population", int, 16, "assignments that are kept", minimum=1, maximum=1000),
                SEED,
                SPEED,
                BANDWIDTH,
            ),
            aliases=("dt-fm",),
        ),
        Entry(
            "optimum",
            "barnraise.matching.optimum:Optimum",
            "the least total time (assignment problem, or linear relaxation with sizes), for up to some hundreds",
            options=(SPEED, BANDWIDTH),
        ),
        Entry(
            "gale_shapley",
            "barnraise.matching.persistent_market:GaleShapley",
            "a stable matching on observed speeds and told or observed bandwidths: no task and node would both rather "
            "have each other",
            declares=SchedulerTraits(keeps_market=True),
            options=(
                SPEED,
                BANDWIDTH,
                Option(
                    "priority_first",
                    bool,
                    False,
                    "nodes rank tasks by priority before size: urgent tasks win, total time suffers",
                ),
                Option(
                    "best_for_nodes",
                    bool,
                    False,
                    "of all stable matchings the one in which nodes are best off (more of a task's data is there "
                    "already), instead of the one in which tasks are",
                ),
                Option(
                    "switching_cost",
                    float,
                    0.0,
                    "seconds that a task on offer must gain to go from one node to another",
                    minimum=0.0,
                    maximum=1e6,
                ),
                Option(
                    "priced",
                    bool,
                    False,
                    "congestion prices for what is on offer, too, and not only for tasks that are given once: the "
                    "market is then stable at these prices, instead of by time",
                ),
            ),
            aliases=("gale-shapley", "deferred_acceptance"),
        ),
    ],
)


def keeps_market(name: str) -> bool:
    """Return whether the scheduler of this name keeps a standing market. Raises UnknownNameError."""
    traits = CATALOG.entry(name).declares
    return isinstance(traits, SchedulerTraits) and traits.keeps_market
