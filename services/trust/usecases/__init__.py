"""What callers may want of the trust registry: one method per intention, one transaction each."""
