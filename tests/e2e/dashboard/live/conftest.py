"""One live study for all tests of this folder that a process runs: it takes 15 s to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.browser import dashboard
from tests.e2e.dashboard.live.study_that_runs import (
    TOKEN,
    LiveStudy,
    add_study_of_optuna,
    begin,
)
from tests.e2e.study_folder import StudyFolder


@pytest.fixture(scope="session")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStudy]:
    parent = tmp_path_factory.mktemp("live")
    (parent / "tmp").mkdir()
    (parent / "user").mkdir()
    folder = StudyFolder(path=parent / "user", env={"TMPDIR": str(parent / "tmp")})
    try:
        begin(folder)
        study = LiveStudy(folder=folder, address="")
        add_study_of_optuna(study.url, "falling", [9.0, 4.0, 6.0, 2.0], direction="minimize")
        add_study_of_optuna(study.url, "other", [1.0], direction="minimize", metric="loss")
        for seed, values in ((1, [0.1, 0.5, 0.7]), (2, [0.3, 0.4, 0.9])):
            add_study_of_optuna(study.url, f"seed-{seed}", values, direction="maximize")
        folder.write("token", f"{TOKEN}\n")
        _, where = dashboard(folder, "small.db", "--token-file", "token")
        yield LiveStudy(folder=folder, address=where)
    finally:
        folder.end_all()


@pytest.fixture
def live(_running: LiveStudy) -> LiveStudy:
    """Every device is held by a trial that waits for `release`."""
    _running.wait_until_held()
    return _running
