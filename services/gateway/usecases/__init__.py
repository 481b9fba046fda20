"""What the gateway does of its own: waits for callers, gathers heartbeats."""
