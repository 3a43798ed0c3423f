"""Where the next trial comes from: budget, prefetch, leases, grants."""
