"""Figures of devices over time."""
