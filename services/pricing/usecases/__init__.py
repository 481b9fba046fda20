"""What the pricing engine can be asked to do: one method per intention, one transaction each."""
