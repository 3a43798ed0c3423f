"""Early stopping: the registry of pruners, and a module for each."""
