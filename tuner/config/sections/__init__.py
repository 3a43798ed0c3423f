"""The sections of study.yaml, each with its own model."""
