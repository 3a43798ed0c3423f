"""A machine that is divided among its users: its rules, and a study's devices there."""
