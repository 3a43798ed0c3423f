"""Watches the rules file: the last valid version applies, and changes are reported."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from tuner.errors import ConfigError
from tuner.shares.people import forget_names, id_here
from tuner.shares.rules import HourRules, ShareRules, read_rules


class RulesWatch:
    """Reads a machine's rules, and rereads them when the file changes.

    Args:
        path: The rules file, which exists.
        rules: Its current content.
    """

    def __init__(self, path: Path, rules: ShareRules) -> None:
        self._path = path
        self.rules = rules
        self._seen = _stamp(path)
        self.digest = _digest(rules)
        """Equal for equal rules whose names mean the same users."""

    def look(self) -> str:
        """Checks for a change of the file.

        Returns:
            The change, as text; empty if there is none.
        """
        stamp = _stamp(self._path)
        if stamp == self._seen:
            return ""
        self._seen = stamp
        try:
            rules = read_rules(self._path)
        except ConfigError as error:
            return f"The rules of shares that held before still hold: {error}"
        if rules is None:
            return f"{self._path} is gone. Its rules hold until this study ends."
        if rules == self.rules:
            return ""
        self.rules = rules
        forget_names()
        self.digest = _digest(rules)
        return f"{self._path} has changed, and its new rules hold."


def _digest(rules: ShareRules) -> str:
    sections: list[ShareRules | HourRules] = [rules, *rules.quiet_hours.values()]
    named = {
        name for each in sections for name in (*(each.guaranteed or ()), *(each.weights or ()))
    }
    # In another container a name may be another user's.
    ids = [(name, id_here(name)) for name in sorted(named)]
    return hashlib.sha256(f"{rules.model_dump_json()}{ids}".encode()).hexdigest()[:16]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
