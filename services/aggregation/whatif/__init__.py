"""What-if solvers of this service: one module per solver, each with `Input` and `solve`."""

SOLVERS = {
    "combine": "services.aggregation.whatif.combine",
    "step": "services.aggregation.whatif.step",
    "sums": "services.aggregation.whatif.sums",
    "grid": "services.aggregation.whatif.grid",
    "rounding": "services.aggregation.whatif.rounding",
    "discrete-noise": "services.aggregation.whatif.discrete_noise",
    "sum-privacy": "services.aggregation.whatif.sum_privacy",
}
