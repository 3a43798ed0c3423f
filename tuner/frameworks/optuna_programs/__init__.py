"""Programs that call `study.optimize`: what they ask for, and their objective as a trial."""
