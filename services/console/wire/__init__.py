"""What is asked of the gateway, and what is remembered of its answers for a moment."""
