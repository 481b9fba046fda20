"""One module per group of commands, put together in `coterie_cli.main`."""
