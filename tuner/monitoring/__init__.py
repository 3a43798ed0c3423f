"""Metrics for Prometheus, hooks, and the process of the dashboard."""
