"""Supply of trials: budget, prefetch, leases and grants."""
