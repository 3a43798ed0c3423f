"""Shares of one machine's devices for several users: rules, claims and one decision."""
