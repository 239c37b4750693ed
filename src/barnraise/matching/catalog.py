"""The schedulers by name."""

from __future__ import annotations

from barnraise.core.registry import Catalog, Entry, Option

CATALOG = Catalog(
    "scheduler",
    "barnraise.matching",
    [
        Entry("fifo", "barnraise.matching.greedy:Fifo", "the oldest task to the node that asked first"),
        Entry("priority", "barnraise.matching.greedy:Priority", "the most urgent task first, then the oldest"),
        Entry("capability", "barnraise.matching.greedy:Capability", "the largest task to the fastest node"),
        Entry(
            "deferred_acceptance",
            "barnraise.matching.gale_shapley:DeferredAcceptance",
            "a stable matching on observed speeds and told bandwidths (live workers tell none): no task and node would "
            "both rather have each other",
            options=(
                Option(
                    "default_speed",
                    float,
                    1000.0,
                    "tokens a second assumed of a node whose speed is not measured yet",
                    minimum=1e-3,
                    maximum=1e15,
                ),
                Option(
                    "default_bandwidth",
                    float,
                    1.25e6,
                    "bytes a second assumed of a link that is not measured yet",
                    minimum=1e-3,
                    maximum=1e15,
                ),
                Option(
                    "priority_first",
                    bool,
                    False,
                    "nodes rank tasks by priority before size: urgent tasks win, total time suffers",
                ),
            ),
        ),
    ],
)
