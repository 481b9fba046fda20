"""What-if solvers of this service: one module per solver, each with `Input` and `solve`."""

SOLVERS = {
    "clusters": "services.topology.whatif.formation",
    "mesh": "services.topology.whatif.betta",
    "noise": "services.topology.whatif.noise",
    "blocks": "services.topology.whatif.blocks",
    "identity": "services.topology.whatif.identity",
    "quality": "services.topology.whatif.quality",
    "clerks": "services.topology.whatif.clerks",
}
