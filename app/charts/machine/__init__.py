"""Figures of a machine and its users."""
