"""Possible content of a study file: JSON Schema, reference, template."""
