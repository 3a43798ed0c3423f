"""Engines, transactions and errors of the three databases."""
