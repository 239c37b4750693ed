"""Congestion prices: the cost of a node beside its time, so that tasks spread as at the least total cost.

They are the dual prices lambda_i of the capacities in

    min sum_ij x_ij c_ij,   sum_i x_ij = 1 for each task j,   sum_j w_j x_ij <= C_i for each node i

The optimum sends a task where c_ij + lambda_i w_j is least. Per unit of work this is a transport problem. It is
solved with a little entropy (Cuturi, "Sinkhorn Distances", 2013; capacities as in Benamou et al., "Iterative Bregman
Projections", 2015), which is lowered step by step. For large markets a sample is solved, and every other node gets the
price at which the sample's tasks would just fill it.
"""

from __future__ import annotations

import numpy as np

from .scores import Floats

WARMEST, COLDEST = 1.0, 3e-4
"""First and last entropy, as a share of the mean cost."""
STEPS, ROUNDS = 28, 12


def congestion_prices(costs: Floats, sizes: Floats, room: Floats) -> tuple[Floats, Floats, float]:
    """Return (prices [nodes], total payments [tasks], the last entropy), all per unit of size.

    `costs` are [tasks, nodes] per unit of size (inf refuses), `sizes` [tasks] and `room` [nodes] above 0. Every task
    must have a node, and the sizes fit into the room altogether.
    """
    finite = np.isfinite(costs)
    scale = float(costs[finite].mean()) or 1.0
    paid, prices = np.zeros(len(sizes)), np.zeros(len(room))
    entropy = WARMEST * scale
    for step in range(STEPS):
        entropy = scale * WARMEST * (COLDEST / WARMEST) ** (step / (STEPS - 1))
        margin = paid[:, None] - prices - costs
        best = margin.max(axis=1)  # at most 1 from here on, so that nothing overflows
        paid -= best
        kernel = np.exp((margin - best[:, None]) / entropy)
        free = np.exp(np.minimum(prices / entropy, 600))  # a price is never below 0
        tasks_side, nodes_side = np.ones(len(sizes)), np.ones(len(room))
        for _ in range(ROUNDS):
            tasks_side = sizes / np.maximum(kernel @ nodes_side, 1e-290)
            nodes_side = np.minimum(room / np.maximum(tasks_side @ kernel, 1e-290), free)
        paid += entropy * np.log(tasks_side)
        prices = np.maximum(prices - entropy * np.log(np.maximum(nodes_side, 1e-290)), 0.0)
    return prices, paid, entropy


def fill_prices(costs: Floats, paid: Floats, room: Floats, entropy: float) -> Floats:
    """Return the prices of nodes at which tasks that pay `paid` [tasks] would just fill their `room` [nodes].

    `costs` are [nodes, tasks], the others as above.
    """
    margin = (paid - costs) / entropy
    best = np.maximum.reduce(margin, axis=1, initial=-1e300)  # finite also where a node refuses them all
    demand = best + np.log(np.add.reduce(np.exp(margin - best[:, None]), axis=1, initial=1e-290))
    prices: Floats = np.maximum(0.0, entropy * (demand - np.log(room)))
    return prices
