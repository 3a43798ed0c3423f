"""Headers of a dashboard that listens on every address, and what it says at its start."""

from __future__ import annotations

import urllib.request

import pytest

from tests.e2e.browser import free_port
from tests.e2e.study_folder import StudyFolder, wait_until

pytestmark = pytest.mark.programs


def test_every_answer_refuses_foreign_frames_and_the_start_says_what_is_public(
    study_folder: StudyFolder,
) -> None:
    study_folder.study(budget={"trials": 1})
    assert study_folder.tune().code == 0
    port = free_port()
    words = ("dashboard", "study.yaml", "--host", "0.0.0.0", "--port", str(port))
    server = study_folder.start_tuner(*words)
    where = f"http://127.0.0.1:{port}"
    wait_until(lambda: where in server.out, "it says where it is")
    assert "Listening on 0.0.0.0" in server.out
    assert "can read all studies" in server.out
    for path in ("/", "/trials", "/_stcore/health"):
        with urllib.request.urlopen(where + path, timeout=60) as answer:
            assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'self'"
