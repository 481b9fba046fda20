"""Schema of the trust registry, version by version."""
