"""The REST edge for devices, publishers and admins."""
