"""Notation of study.yaml: durations, sizes, `{name}` placeholders in a command or a pattern."""
