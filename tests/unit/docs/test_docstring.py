"""Docstrings are split into text, arguments, result and errors."""

from __future__ import annotations

import subprocess

from docs.generate.docstring import Docstring, Item, parse_docstring

WHOLE = """Saves a state.

    Rank 0 alone writes.

    Args:
        state: Such as `{"a": 1}`,
            with tensors.
        **more: Further values: any.

    Returns:
        The file,
        or None.

    Raises:
        OSError: If it cannot be written: the disk is full.
    """


def test_sections_of_a_docstring() -> None:
    assert parse_docstring(WHOLE) == Docstring(
        text="Saves a state.\n\nRank 0 alone writes.",
        arguments=(
            Item(name="state", text='Such as `{"a": 1}`, with tensors.'),
            Item(name="**more", text="Further values: any."),
        ),
        returns="The file, or None.",
        raises=(Item(name="OSError", text="If it cannot be written: the disk is full."),),
    )


def test_text_in_one_line() -> None:
    assert parse_docstring(WHOLE).in_one_line == "Saves a state. Rank 0 alone writes."


def test_no_docstring() -> None:
    assert parse_docstring(None) == Docstring()


def test_docstring_of_errors_alone() -> None:
    parsed = parse_docstring("\n    Raises:\n        ValueError: If it is wrong.\n    ")
    assert parsed == Docstring(raises=(Item(name="ValueError", text="If it is wrong."),))


def test_docstring_of_the_standard_library_is_text_alone() -> None:
    parsed = parse_docstring(subprocess.Popen.__init__.__doc__)
    assert parsed.text.startswith("Create new Popen instance.")
    assert parsed.arguments == ()
