"""The name under which pip installs the tuner; the package `tuner` is what it contains.

Another program owns the name `tuner` on the public package index.
"""

from __future__ import annotations

from typing import Final

DISTRIBUTION: Final = "gpu-tuner"
