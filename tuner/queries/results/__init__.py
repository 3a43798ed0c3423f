"""The best configurations and schedules of a study, in every format."""
