"""Docstrings in Google's style, split into their text and their sections."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

_SECTION = re.compile(r"^(Args|Returns|Raises):$")
_ITEM = re.compile(r"^(\**\w+): *(.*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One argument or one error."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Docstring:
    """The parts of one docstring; each is empty if the docstring lacks it."""

    text: str = ""
    arguments: tuple[Item, ...] = ()
    returns: str = ""
    raises: tuple[Item, ...] = ()

    @property
    def in_one_line(self) -> str:
        """The text without line breaks, for a cell of a table."""
        return " ".join(self.text.split())

    def argument(self, name: str) -> str:
        """The text of one argument, empty if it is not described."""
        return next((each.text for each in self.arguments if each.name == name), "")


def parse_docstring(raw: str | None) -> Docstring:
    """Splits a docstring.

    Args:
        raw: As it stands in the source; None if there is none.
    """
    sections: dict[str, list[str]] = {"": []}
    lines = sections[""]
    for line in inspect.cleandoc(raw or "").splitlines():
        if found := _SECTION.match(line):
            lines = sections.setdefault(found[1], [])
        else:
            lines.append(line)
    return Docstring(
        text="\n".join(sections[""]).strip(),
        arguments=tuple(_items(sections.get("Args", []))),
        returns=_joined(sections.get("Returns", [])),
        raises=tuple(_items(sections.get("Raises", []))),
    )


def _items(lines: list[str]) -> Iterator[Item]:
    name, texts = "", list[str]()
    for line in inspect.cleandoc("\n" + "\n".join(lines)).splitlines():
        if found := _ITEM.match(line):
            if name:
                yield Item(name=name, text=_joined(texts))
            name, texts = found[1], [found[2]]
        else:
            texts.append(line)
    if name:
        yield Item(name=name, text=_joined(texts))


def _joined(lines: list[str]) -> str:
    return " ".join(word for line in lines for word in line.split())
