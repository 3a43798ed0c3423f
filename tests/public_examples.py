"""Runs public programs of Optuna as they stand, and prints what became of each.

    python -m tests.public_examples basic/pruning.py pytorch/pytorch_simple.py

It loads optuna/optuna-examples at a fixed commit, so it needs a network; `--folder` names a copy
that is there already. Packages that an example needs are not installed. Nothing is edited: each
runs in a copy of its folder, by `tuner run FILE --trials 3`.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMIT = "2e0b10bc54501e801687e114de3cbe1b6d2407dc"
_URL = f"https://github.com/optuna/optuna-examples/archive/{COMMIT}.tar.gz"
_TIMEOUT_S = 600.0
_N_LINES = 8


@contextmanager
def repository(folder: Path | None) -> Iterator[Path]:
    """The examples: a copy that is there, or one that is loaded."""
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory() as target:
        with urllib.request.urlopen(_URL, timeout=60) as answer:
            content = io.BytesIO(answer.read())
        with tarfile.open(fileobj=content) as archive:
            archive.extractall(target, filter="data")
        yield Path(target, f"optuna-examples-{COMMIT}")


def run(file: Path, options: list[str]) -> tuple[int | None, str]:
    """Runs an example; gives the exit code (None: it took too long) and what was printed."""
    with tempfile.TemporaryDirectory() as target:
        folder = Path(target, "example")
        shutil.copytree(file.parent, folder)
        words = [sys.executable, "-m", "tuner.run", file.name, *options]
        try:
            ended = subprocess.run(
                words,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None, f"It had not ended after {_TIMEOUT_S:g} s."
        return ended.returncode, ended.stdout


def main() -> int:
    """Prints a line for each example, and the last lines of those that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("examples", nargs="+", help="paths in the repository of examples")
    parser.add_argument("--folder", type=Path, help="a copy of the repository")
    parser.add_argument("--set", action="append", default=[], help="as for tuner run")
    arguments = parser.parse_args()
    options = ["--trials", "3", *(word for each in arguments.set for word in ("--set", each))]
    n_failed = 0
    with repository(arguments.folder) as examples:
        for name in arguments.examples:
            code, text = run(examples / name, options)
            print(f"{name}: {'ok' if code == 0 else f'exit code {code}'}", flush=True)
            if code != 0:
                n_failed += 1
                print("\n".join(f"    {line}" for line in text.splitlines()[-_N_LINES:]))
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
