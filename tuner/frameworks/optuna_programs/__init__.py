"""Programs that call `study.optimize`: their settings, and their objective as a trial."""
