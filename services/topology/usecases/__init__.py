"""What may be asked of the topology planner: one method per intention, one transaction each."""
