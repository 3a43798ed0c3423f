"""Background work: outages, other dispatchers, commands, telemetry, checkpoints."""
