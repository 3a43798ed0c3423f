"""The output of an attempt: all of it, its end, and what is added while somebody reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.errors import ConfigError
from tuner.terminal.logs import follow_log, text_of_log
from tuner.terminal.trial_words import read_words

LINES = "".join(f"line {number}\n" for number in range(40_000))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "attempt-1.log"


@pytest.mark.parametrize(
    ("text", "n", "expected"),
    [
        ("a\nb\nc\n", 2, "b\nc\n"),
        ("a\nb\nc", 2, "b\nc"),
        ("a\nb\n", 5, "a\nb\n"),
        ("a\nb\n", 0, ""),
        ("", 3, ""),
        ("a\n\n\n", 2, "\n\n"),
        # A progress bar is one line.
        ("a\n10%\r20%\r30%\n", 1, "10%\r20%\r30%\n"),
        (LINES, 2, "line 39998\nline 39999\n"),
        (LINES, None, LINES),
    ],
)
def test_end_of_a_log(log: Path, text: str, n: int | None, expected: str) -> None:
    log.write_bytes(text.encode())
    assert "".join(text_of_log(log, n)) == expected


def test_characters_that_a_read_cuts_in_two_stay_whole(log: Path) -> None:
    text = "ä" * 700_001 + "\nende\n"
    log.write_bytes(b"x" + text.encode())
    assert "".join(text_of_log(log)) == "x" + text


def test_what_is_added_is_read_until_the_attempt_is_over(log: Path) -> None:
    log.write_text("one\ntwo\nthr")
    more = iter(["ee\n", "four\n", ""])
    looks: Iterator[bool] = iter([False, False, True])

    def wait(_: float) -> None:
        with log.open("a") as file:
            file.write(next(more))

    def is_over() -> bool:
        over = next(looks)
        if over:
            wait(0)
        return over

    assert "".join(follow_log(log, is_over, 2, wait=wait)) == "two\nthree\nfour\n"


def test_log_that_is_not_there(log: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        "".join(text_of_log(log))
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        "".join(follow_log(log, lambda: True))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["17"], (None, 17)),
        (["study.yaml", "17"], ("study.yaml", 17)),
        (["17", "study.yaml"], ("study.yaml", 17)),
        # A study whose name is a number stands first.
        (["3", "17"], ("3", 17)),
    ],
)
def test_words_of_a_trial(words: list[str], expected: tuple[str | None, int]) -> None:
    assert read_words(words, "tuner why") == expected


@pytest.mark.parametrize("words", [[], ["study.yaml"], ["a", "b"], ["a", "1", "2"], ["-1"]])
def test_other_words_are_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"such as study\.yaml 17\."):
        read_words(words, "tuner why")
