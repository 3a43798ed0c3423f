"""Names of studies that engines and file systems take."""

from __future__ import annotations

import hashlib
import re

_NOT_IN_NAMES = re.compile(r"[^\w.:@+-]", re.ASCII)


def plain_name(study: str) -> str:
    """The study's name as far as every engine can show it; two studies never share one."""
    name = _NOT_IN_NAMES.sub("_", study)
    if name != study:
        # `a b` and `a_b` are two studies.
        name += f"-{hashlib.sha256(study.encode()).hexdigest()[:6]}"
    return name
