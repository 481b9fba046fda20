"""Use cases of the pricing engine: one method per intention, one transaction each."""
