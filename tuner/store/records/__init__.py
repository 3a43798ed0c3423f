"""The tuner's own tables: attempts, dispatchers, commands, checkpoints, usage."""
