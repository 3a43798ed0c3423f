"""The order of a queue, and what may be done to its entries."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.errors import ConfigError
from tuner.queue.entries import Entry, Queue, queue_folder
from tuner.queue.service import unit_text
from tuner.terminal.machine.queue import queue_text


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue(tmp_path / "queue")


def put(queue: Queue, study: str, priority: int = 50) -> int:
    entry = Entry(
        id=0,
        study=study,
        file=f"/home/ann/{study}.yaml",
        folder="/home/ann",
        python=sys.executable,
        priority=priority,
    )
    return queue.add(entry).id


def studies(queue: Queue) -> list[str]:
    return [each.study for each in queue.entries()]


def test_studies_wait_by_priority_and_then_in_their_order(queue: Queue) -> None:
    for study, priority in (("a", 50), ("b", 50), ("c", 90), ("d", 10), ("e", 50)):
        put(queue, study, priority)
    assert studies(queue) == ["c", "a", "b", "e", "d"]
    following = queue.take_next()
    assert following is not None
    assert following.study == "c"


def test_nothing_comes_before_a_study_that_runs(queue: Queue) -> None:
    first = put(queue, "a", 10)
    queue.note_started(first, 77)
    put(queue, "b", 90)
    assert studies(queue) == ["a", "b"]
    with pytest.raises(ConfigError, match=r"which runs\. To end it: tuner stop /home/ann/a\.yaml"):
        queue.remove(first)
    assert "runs (pid 77)" in queue_text(queue.entries(), queue.log)


@pytest.mark.parametrize(
    ("place", "order"), [(1, "cab"), (2, "acb"), (3, "abc"), (99, "abc"), (0, "cab")]
)
def test_a_study_that_waits_gets_another_place(queue: Queue, place: int, order: str) -> None:
    numbers = [put(queue, study) for study in "abc"]
    queue.move(numbers[2], place)
    assert studies(queue) == list(order)


def test_ended_studies_are_last_and_only_the_newest_are_kept(queue: Queue) -> None:
    waiting = put(queue, "waits", 0)
    for number in range(25):
        entry_id = put(queue, f"s{number}")
        queue.log(entry_id).write_text("output")
        queue.note_started(entry_id, 7)
        queue.note_ended(entry_id, 0)
    entries = queue.entries()
    assert entries[0].id == waiting
    assert [each.study for each in entries[1:]] == [f"s{number}" for number in range(5, 25)]
    assert len(list(queue.folder.glob("*.log"))) == 20
    with pytest.raises(ConfigError, match="has ended already"):
        queue.remove(entries[1].id)


def test_what_ran_at_a_crash_is_the_next_to_start(queue: Queue) -> None:
    put(queue, "b", 90)
    queue.note_started(put(queue, "a", 10), 77)
    queue.put_back_running()
    following = queue.take_next()
    assert following is not None
    assert following.study == "a"


def test_a_wrong_number_and_a_damaged_file_have_messages(queue: Queue) -> None:
    number = put(queue, "a")
    with pytest.raises(ConfigError, match=f"is 99, but the queue has no such number. .* {number}"):
        queue.remove(99)
    (queue.folder / "entries.json").write_text("[{")
    with pytest.raises(ConfigError, match=r"entries\.json: is damaged"):
        queue.entries()


def test_no_other_user_can_read_a_queue(queue: Queue) -> None:
    put(queue, "a")
    assert stat.S_IMODE(queue.folder.stat().st_mode) == 0o700


def test_a_home_of_several_machines_has_a_queue_for_each() -> None:
    folder = queue_folder({"HOME": "/home/ann"})
    assert folder.parent == Path("/home/ann/.local/state/tuner/queue")
    assert queue_folder({"XDG_STATE_HOME": "/state"}).parent == Path("/state/tuner/queue")


def test_systemd_reads_the_path_of_python_as_it_stands() -> None:
    assert 'ExecStart="/a b/50%% \\"x\\"/python" -m tuner.queue\n' in unit_text(
        '/a b/50% "x"/python'
    )


@pytest.mark.slow
@pytest.mark.parametrize("state_home", ["", '/home/ann/100% "state"'])
def test_systemd_takes_the_unit(tmp_path: Path, state_home: str) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    unit = tmp_path / "tuner-queue.service"
    unit.write_text(unit_text(sys.executable, state_home))
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
    )
    # It has an exit code of 0 for what it ignores.
    assert (done.returncode, unit.name in done.stderr) == (0, False), done.stderr


def test_a_study_that_failed_says_where_its_output_is(queue: Queue) -> None:
    for code in (0, 2):
        queue.note_ended(put(queue, f"s{code}"), code)
    text = queue_text(queue.entries(), queue.log)
    assert text.splitlines()[-1] == f"Output of 2: {queue.folder / '2.log'}"
    assert "Output of 1" not in text
