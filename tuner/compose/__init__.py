"""Builds the parts of a study and connects them. The only package that names adapters."""
