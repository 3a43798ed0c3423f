"""How study.yaml writes a value: durations, sizes, `{name}` places in a command or a pattern."""
