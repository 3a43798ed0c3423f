"""Every test of the project."""

import os

# NumPy and torch read these when they are imported. On processors that other tests use, threads of
# linear algebra wait for each other: fits of a second took a minute.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
