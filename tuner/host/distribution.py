"""The tuner's distribution name for pip; it contains the package `tuner`.

Another project owns the name `tuner` on the public package index.
"""

from __future__ import annotations

from typing import Final

DISTRIBUTION: Final = "gpu-tuner"
