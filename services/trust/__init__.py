"""Trust registry: owners, devices, relations, interactions, trust scores."""
