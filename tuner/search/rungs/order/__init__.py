"""Whether the ranking of trials at a rung holds later: the check, its witnesses, and its notes."""
