"""Readings of utilisation, memory and power, and their totals."""
