"""Waking long polls in this process and in other replicas."""
