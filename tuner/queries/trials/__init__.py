"""Reads trials and their attempts."""
