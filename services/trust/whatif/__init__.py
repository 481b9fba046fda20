"""What-if solvers of this service: one module per solver, each with `Input` and `solve`."""

SOLVERS = {"scores": "services.trust.whatif.scores"}
