"""What each device did, and when it had no trial."""
