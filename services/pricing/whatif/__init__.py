"""What-if solvers of this service: one module per solver, each with `Input` and `solve`."""

SOLVERS = {
    "market": "services.pricing.whatif.budgets",
    "survey": "services.pricing.whatif.collection",
    "curvature": "services.pricing.whatif.curvature",
    "similarity": "services.pricing.whatif.similarity",
}
