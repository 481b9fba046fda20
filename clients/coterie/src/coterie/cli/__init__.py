"""The command `coterie`: one module per group of commands, put together in `main`."""
