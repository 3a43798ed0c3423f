"""`python -m tuner.best study.yaml --top 5 --format args`: the best configurations again."""

from __future__ import annotations

if __name__ == "__main__":
    from tuner.compose.import_guard import refuse_shadow

    refuse_shadow()

    from tuner.cli import entry

    entry.best()
