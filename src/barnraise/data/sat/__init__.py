"""SAT formulas, the solver whose reasoning a model learns, its traces, and the datasets made of them."""
