"""Proto in, use case, proto out."""
