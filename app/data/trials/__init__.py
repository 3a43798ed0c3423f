"""Trials as columns and tables, one trial, curves."""
