"""The services of the Coterie platform."""
