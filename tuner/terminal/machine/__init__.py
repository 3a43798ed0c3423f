"""What commands print about a machine and its users: shares, the queue."""
