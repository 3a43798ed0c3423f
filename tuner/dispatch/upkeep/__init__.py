"""What runs beside the trials: outages, other dispatchers, commands, telemetry, checkpoints."""
