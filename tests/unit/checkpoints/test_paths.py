"""Where a study keeps its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.checkpoints.paths import StudyFiles


def files(study: str = "digits") -> StudyFiles:
    return StudyFiles(folder=Path("/home/ann"), study=study)


def test_every_path_is_below_the_study_folder():
    root = Path("/home/ann/tuner-files/digits")
    assert files().root == root
    assert files().preload_log == root / "imports.log"
    assert files().dispatcher_log == root / "dispatcher.log"
    assert files().log(3, 2) == root / "trial-3" / "attempt-2.log"
    assert files().checkpoints(3) == root / "trial-3" / "checkpoints"


@pytest.mark.parametrize("study", ["../evil", "a/b", "a b\nc", "/etc", "../.."])
def test_no_name_of_a_study_leads_out_of_the_folder(study):
    root = files(study).root
    assert root.parent == Path("/home/ann/tuner-files")
    assert root.name not in {"", ".", ".."}


def test_two_studies_never_share_a_folder():
    assert len({files(study).root for study in ("a b", "a_b", "a/b", "a  b")}) == 4


def test_studies_of_other_letters_keep_their_name():
    assert files("größe-2.1+x").root.name == "größe-2.1+x"
