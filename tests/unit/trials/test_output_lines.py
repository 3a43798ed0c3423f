"""How a program's output becomes lines, however long they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tuner.trials.worker.output_lines import MAX_LINE_BYTES, LineSplitter


def lines_of(*chunks: bytes) -> list[bytes]:
    splitter = LineSplitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return [line for line in [*lines, *splitter.finish()] if line]


@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"d\re\nf"])))
def test_chunks_do_not_matter(chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    assert lines_of(*chunks) == [line for line in whole.replace(b"\r", b"\n").split(b"\n") if line]


def test_each_state_of_a_progress_bar_is_a_line_at_once() -> None:
    splitter = LineSplitter()
    assert list(splitter.feed(b"10% loss 3\r20% loss 2\r30%")) == [b"10% loss 3", b"20% loss 2"]
    assert list(splitter.feed(b" loss 1\r")) == [b"30% loss 1"]


def test_a_line_that_never_ends_is_given_once_and_cut() -> None:
    chunk = b"x" * 65536
    splitter = LineSplitter()
    lines = [line for _ in range(64) for line in splitter.feed(chunk)]
    assert [len(line) for line in lines] == [MAX_LINE_BYTES]


def test_what_follows_a_long_line_is_read() -> None:
    long = b"x" * (MAX_LINE_BYTES + 10)
    assert lines_of(long, b"yyy\nacc 0.5\n", b"acc 0.6") == [
        b"x" * MAX_LINE_BYTES,
        b"acc 0.5",
        b"acc 0.6",
    ]


def test_nothing_of_a_long_line_is_kept_in_memory() -> None:
    splitter = LineSplitter()
    for _ in range(64):
        list(splitter.feed(b"x" * 65536))
    assert len(splitter._unfinished) == 0
