"""Long polls, heartbeat batching, and measured runs for what-if questions."""
