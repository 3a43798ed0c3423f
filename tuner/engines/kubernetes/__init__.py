"""Kubernetes: one Job of one pod for each node."""
