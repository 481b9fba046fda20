"""A task's rule: how a round's updates become one change, and how the model takes a step along it.

`axis` reads a rule's name and parameters; `combining` runs it over updates a chunk at a time; the families are `means`,
`krum`, `geometric`, `clipping`, with `mixing` before them and `weighting` beside them. `optimisers` takes the step.
"""
