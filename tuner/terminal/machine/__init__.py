"""Output about a machine and its users: devices, shares, the queue."""
