"""Finds a user's module named `tuner`, which hides the package.

Imports the standard library only: it is called before any module that could be hidden.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

PACKAGE = "tuner"
EXIT_BAD_INPUT = 2


def find_shadow(folders: Iterable[Path]) -> str:
    """The problem and its fix if a folder has such a module; else empty."""
    ours = Path(__file__).resolve().parents[2]
    for folder in folders:
        for found in (folder / f"{PACKAGE}.py", folder / PACKAGE / "__init__.py"):
            if found.exists() and not found.resolve().is_relative_to(ours / PACKAGE):
                return (
                    f"The folder {folder} has a module {PACKAGE!r} of its own, which hides the "
                    f"installed package of that name. Rename {found.relative_to(folder)}."
                )
    return ""


def refuse_shadow() -> None:
    """Ends the program if the current folder hides one of our packages."""
    if problem := find_shadow([Path.cwd()]):
        print(problem, file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT)
