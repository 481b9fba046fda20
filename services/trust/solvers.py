"""The what-if solvers of this service: name → module."""

SOLVERS = {"scores": "services.trust.whatif.scores"}
