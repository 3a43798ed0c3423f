"""Output about a machine and its users: shares, the queue."""
