"""What people ask of a study in the browser: who may, what came of it, and notes."""
