"""Every text that a terminal shows."""
