"""Real trainings, recorded as tables of learning curves."""
