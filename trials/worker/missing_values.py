"""Explains why a successful command has no value: what was expected, and what it printed."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence

from tuner.config.notation.metric_pattern import near_miss


def explain_missing_values(
    objectives: Sequence[str], pattern: str | None, n_lines: int, tail: Sequence[str]
) -> str:
    """Explains missing values.

    Args:
        objectives: Names of the objectives.
        pattern: `trial.metrics.pattern`; None if JSON lines are read.
        n_lines: Number of lines that the program printed.
        tail: The last ones.
    """
    example = json.dumps({"step": 1, **dict.fromkeys(objectives, 0.5)})
    if not n_lines:
        return (
            "It printed nothing. Its metrics are read from its output: print lines such as "
            f"{example}."
        )
    if pattern is not None:
        sentences = [f"trial.metrics.pattern matched none of its {n_lines} lines."]
        sentences.append(near_miss(pattern, tail))
    else:
        which = f"None of its {n_lines} lines is a" if n_lines > 1 else "Its only line is no"
        sentences = [f"{which} JSON object with {' or '.join(objectives)}, such as {example}."]
        sentences.append(_near_json(objectives, tail))
    shown = " ".join(filter(None, [*sentences, "The last ones:"]))
    return f"{shown}\n" + "\n".join(tail)


def _near_json(objectives: Sequence[str], tail: Sequence[str]) -> str:
    for line in reversed(tail):
        if isinstance(found := _mapping(line), dict):
            names = [
                str(name)
                for name, value in found.items()
                if isinstance(value, int | float) and name not in ("step", *objectives)
            ]
            if any(name in found for name in objectives):
                return "A line is a dict of Python: print(json.dumps(...)) writes it as JSON."
            if names:
                return (
                    f"A line has {', '.join(names)}. Name the objective so: objectives: "
                    f"{{{names[0]}: minimize}}, or maximize."
                )
    return "Print such lines, or give trial.metrics.pattern."


def _mapping(line: str) -> object:
    """A line that is JSON, or a dict as Python prints it."""
    try:
        return json.loads(line)
    except ValueError:
        pass
    try:
        return ast.literal_eval(line.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
