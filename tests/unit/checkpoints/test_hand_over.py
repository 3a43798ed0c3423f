"""Checkpoints that one trial hands on to another: whole, or not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.checkpoints.test_scan import save
from tuner.checkpoints.hand_over import StateCopies
from tuner.checkpoints.layout import METADATA_NAME, newest_whole, sharded_of
from tuner.checkpoints.paths import StudyFiles


@pytest.fixture
def files(tmp_path: Path) -> StudyFiles:
    return StudyFiles(folder=tmp_path, study="study")


@pytest.fixture
def copies(files: StudyFiles) -> StateCopies:
    return StateCopies(files)


def saved(files: StudyFiles, number: int, step: int, at_s: float = 1000.0) -> Path:
    files.checkpoints(number).mkdir(parents=True, exist_ok=True)
    return save(files.checkpoints(number), step, at_s)


def test_the_newest_whole_one_is_given_to_the_copy(files: StudyFiles, copies: StateCopies) -> None:
    saved(files, 1, 9, at_s=1.0)
    content = saved(files, 1, 10, at_s=2.0).read_bytes()
    torn = saved(files, 1, 11, at_s=3.0)
    torn.write_bytes(torn.read_bytes()[:-10])
    assert copies.take(1, 2) == 10
    assert copies.is_here(2)
    assert copies.give(2, 3) == 10
    newest = newest_whole(files.checkpoints(3))
    assert newest is not None
    assert newest.read_bytes() == content
    # The older one as well: the newest may turn out to be damaged.
    assert {path.name for path in files.checkpoints(3).iterdir()} == {"step-9.pt", "step-10.pt"}
    assert not copies.is_here(2)
    assert not files.handed_on(2).exists()


def test_what_its_parent_does_later_does_not_reach_it(
    files: StudyFiles, copies: StateCopies
) -> None:
    path = saved(files, 1, 10)
    content = path.read_bytes()
    assert copies.take(1, 2) == 10
    partial = path.with_suffix(".partial")
    partial.write_bytes(b"written anew")
    partial.replace(path)
    path.unlink()
    assert copies.give(2, 3) == 10
    newest = newest_whole(files.checkpoints(3))
    assert newest is not None
    assert newest.read_bytes() == content


def test_a_state_of_several_ranks_is_copied_whole(files: StudyFiles, copies: StateCopies) -> None:
    folder = sharded_of(files.checkpoints(1), 4)
    folder.mkdir(parents=True)
    for name in ("__0_0.distcp", "__1_0.distcp", METADATA_NAME):
        (folder / name).write_text(name)
    assert copies.take(1, 2) == 4
    assert copies.give(2, 3) == 4
    copied = sharded_of(files.checkpoints(3), 4)
    assert {each.name for each in copied.iterdir()} == {each.name for each in folder.iterdir()}


def test_where_nothing_whole_is_there_is_nothing_to_take(
    files: StudyFiles, copies: StateCopies
) -> None:
    assert copies.take(1, 2) is None
    saved(files, 1, 3).write_bytes(b"torn")
    assert copies.take(1, 2) is None
    assert not copies.has_state(1)
    assert not files.trial(2).exists()


def test_giving_twice_is_giving_once(files: StudyFiles, copies: StateCopies) -> None:
    saved(files, 1, 10)
    copies.take(1, 2)
    assert copies.give(2, 3) == 10
    saved(files, 3, 12, at_s=5000.0)
    assert copies.give(2, 3) == 12


def test_who_has_a_state_of_its_own_is_given_none(files: StudyFiles, copies: StateCopies) -> None:
    saved(files, 1, 10)
    saved(files, 3, 12)
    copies.take(1, 2)
    assert copies.give(2, 3) == 12
    assert {each.name for each in files.checkpoints(3).iterdir()} == {"step-12.pt"}


def test_a_copy_that_is_gone_is_no_state(files: StudyFiles, copies: StateCopies) -> None:
    saved(files, 1, 10)
    copies.take(1, 2)
    copies.drop(2)
    assert copies.give(2, 3) is None


def test_what_a_killed_process_left_is_in_nobodys_way(
    files: StudyFiles, copies: StateCopies
) -> None:
    saved(files, 1, 10)
    partial = files.handed_on(2).with_name(f"{files.handed_on(2).name}.partial")
    partial.mkdir(parents=True)
    (partial / "step-7.pt").write_bytes(b"half")
    assert not copies.is_here(2)
    copies.take(1, 2)
    saved(files, 1, 11, at_s=2000.0)
    assert copies.take(1, 2) == 11
    assert copies.give(2, 3) == 11
    assert {each.name for each in files.trial(2).iterdir()} == set()


def test_a_disk_without_links_gets_copies(
    files: StudyFiles, copies: StateCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no links here")

    path = saved(files, 1, 10)
    monkeypatch.setattr(os, "link", refuse)
    assert copies.take(1, 2) == 10
    assert copies.give(2, 3) == 10
    newest = newest_whole(files.checkpoints(3))
    assert newest is not None
    assert newest.stat().st_ino != path.stat().st_ino


@pytest.mark.parametrize("foreign", [1, 2], ids=["parent", "replaced"])
def test_folder_of_another_trial_is_left_alone(files: StudyFiles, foreign: int) -> None:
    saved(files, 1, 10)
    whose: set[int] = set()
    copies = StateCopies(files, lambda number: number not in whose)
    assert copies.take(1, 2) == 10
    whose.add(foreign)
    assert copies.has_state(1) == (foreign != 1)
    assert copies.is_here(2) == (foreign != 2)
    assert copies.take(1, 2) is None
    copies.drop(2)
    assert files.handed_on(2).exists() == (foreign == 2)
    assert copies.give(2, 3) is None
    assert newest_whole(files.checkpoints(3)) is None
