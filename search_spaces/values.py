"""Values of parameters, for those who need no distribution: a trial that has its values already.

Imports neither Optuna nor NumPy, which take a fifth of a second.
"""

from __future__ import annotations

import json
from typing import TypeAlias

#: A value of one parameter.
Scalar: TypeAlias = str | int | float | bool | None
#: A sampled value or a constant: anything that JSON can hold.
ParamValue: TypeAlias = "Scalar | list[ParamValue] | dict[str, ParamValue]"


def format_value(value: ParamValue) -> str:
    """A value on a command line: text as it is, all else as JSON (`1e-05`, `true`, `[1, 2]`)."""
    return value if isinstance(value, str) else json.dumps(value)
