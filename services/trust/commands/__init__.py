"""What `python -m services.trust …` does beside serving."""
