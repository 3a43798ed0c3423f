"""A log as people read it: without colours, progress bars folded, searched."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from tqdm import tqdm

from tuner.app.data.trials import log_text
from tuner.app.data.trials.log_text import cleaned, read_log


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("", []),
        ("\x1b[31mred\x1b[0m plain", ["red plain"]),
        ("\x1b]0;a title\x07text", ["text"]),
        ("10 %\r50 %\r100 %\ndone", ["100 %", "done"]),
        ("10 %\r50 %\r", ["50 %"]),
        ("\x1b[2K\x1b[1Gdone", ["done"]),
        ("a\n\nb", ["a", "", "b"]),
    ],
)
def test_lines_are_as_a_terminal_shows_them(text: str, lines: list[str]) -> None:
    assert cleaned(text) == lines


def test_a_progress_bar_is_one_line() -> None:
    written = io.StringIO()
    for _ in tqdm(range(50), file=written, mininterval=0, desc="epoch 3"):
        pass
    (line,) = cleaned(written.getvalue())
    assert line.startswith("epoch 3: 100%|")


def test_colours_of_rich_are_gone() -> None:
    written = io.StringIO()
    Console(file=written, force_terminal=True, width=40).print("[bold red]loss[/] [link=x:y]0.5")
    assert "\x1b" in written.getvalue()
    assert cleaned(written.getvalue()) == ["loss 0.5"]


def test_search_finds_lines_whatever_their_case(tmp_path: Path) -> None:
    path = tmp_path / "attempt-1.log"
    path.write_text("Epoch 1\nloss 0.5\nEPOCH 2\nepoch 3\n")
    part = read_log(path, search="epoch", n_last=2)
    assert (part.lines, part.n_read, part.is_cut) == (("EPOCH 2", "epoch 3"), 4, False)


def test_of_a_long_log_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_text, "MAX_SHOWN_BYTES", 10)
    path = tmp_path / "attempt-1.log"
    path.write_text("first\nsecond\nthird\n")
    part = read_log(path)
    assert (part.lines, part.is_cut) == (("third",), True), "no half of a line is shown"
