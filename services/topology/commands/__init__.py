"""What `python -m services.topology …` does beside serving."""
