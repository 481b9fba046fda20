"""What-if solvers of this service: one module per solver, each with `Input` and `solve`."""

SOLVERS = {
    "combine": "services.aggregation.whatif.combine",
    "step": "services.aggregation.whatif.step",
}
