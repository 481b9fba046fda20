"""The papers' experiments, run on the services' own domain code."""
