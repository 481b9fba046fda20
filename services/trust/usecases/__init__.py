"""Use cases of the trust registry: one method per intention, one transaction each."""
