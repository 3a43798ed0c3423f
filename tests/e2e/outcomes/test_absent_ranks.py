"""One of three ranks leaves or hangs while the others wait for it: it is the one that is named."""

from __future__ import annotations

import pytest

from tests.e2e.study_folder import StudyFolder

TRAIN = """
import os, sys, time
from tuner import ddp

def train(trial):
    with ddp.group(trial, timeout_s=6):
        for step in range(5):
            if trial.rank == 2 and step == 2:
                MISBEHAVES
            ddp.mean(1.0, trial)
            trial.report(1.0, step)
    return 1.0
"""
WAYS = {
    "sys.exit(0)": "Rank 2 left while ranks 0, 1 waited in a collective.",
    "os._exit(0)": "Rank 2 left while ranks 0, 1 waited in a collective.",
    "time.sleep(600)": "Rank 2 hung: ranks 0, 1 waited in a collective until its timeout.",
}


@pytest.mark.parametrize("way", sorted(WAYS))
def test_rank_that_the_others_waited_for_is_named(study_folder: StudyFolder, way: str) -> None:
    study_folder.write("forecast.py", TRAIN.replace("MISBEHAVES", way))
    study_folder.study(
        trial={"function": "forecast:train", "parallel": "ddp", "resources": {"cpus": 3}},
        devices="cpu:3",
        budget={"trials": 1},
    )
    ended = study_folder.tune()
    (first, *_) = study_folder.attempts()
    assert (first.outcome, first.cause) == ("failed", "ranks"), ended.text
    assert first.detail.startswith(WAYS[way])
    assert WAYS[way] in ended.out
