"""Every test of the project."""

import os

# NumPy and torch read these when they are imported. On processors that other tests use, threads of
# linear algebra wait for each other: fits of a second took a minute.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
# Trials of the tests have as many threads as those of a user, and many run at a time: a thread of
# OpenMP that waits awake takes the core from the one that it waits for. What takes 17 s took 240.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
