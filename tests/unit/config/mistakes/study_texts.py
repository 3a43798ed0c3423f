"""What the tables of mistakes in study files share."""

from __future__ import annotations

SMALL = "study: digits\ntrial: {function: m:train}\n"
FILLED = (
    "The tuner itself fills {trial_number}, {attempt_number}, {seed}, {checkpoint_dir}, {gpus}. "
)


LR = "search_space: {lr: {type: float, low: 0.1, high: 1}}\n"
DURATION = "a duration above 0, such as 90s, 30m, 1h30m or 2d, or a number of seconds."
URL = (
    "a SQLAlchemy URL: sqlite:///study.db, postgresql://user:${DB_PASSWORD}@host/name "
    "or mysql://user:${DB_PASSWORD}@host/name."
)


def trial(body: str) -> str:
    return f"study: digits\ntrial: {{{body}}}\n"
