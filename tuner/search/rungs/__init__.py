"""Tables of rungs, and the promotion of paused trials."""
