"""Activity of each device, and times without a trial."""
