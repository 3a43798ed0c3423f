"""What follows when an attempt ends: the trial's outcome, a retry, devices that are free again."""
