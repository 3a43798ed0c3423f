"""The dashboard: the convergence of a study and the activity of every device. Reading only."""
