"""`python -m tuner.run study.yaml`: tunes on every device of this machine."""

from __future__ import annotations

if __name__ == "__main__":
    from tuner.compose.import_guard import refuse_shadow

    refuse_shadow()

    from tuner.cli.main import run_main

    run_main()
