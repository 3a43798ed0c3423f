"""One trial as Syne Tune's local backend starts it: a script with its parameters as flags."""

# mypy: disable-error-code="import-not-found,import-untyped"

import argparse

from bench_trial import train_for
from syne_tune import Reporter


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--x", type=float, required=True)
    args, _ = parser.parse_known_args()
    report = Reporter()
    train_for(args.x, lambda value: report(value=value, step=1), slot=None)


if __name__ == "__main__":
    main()
