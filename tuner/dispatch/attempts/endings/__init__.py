"""The end of an attempt: the trial's outcome, a retry, and the release of its devices."""
