"""A study of several objectives ends with its Pareto front."""

from __future__ import annotations

import re

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BUDGET_REACHED

TRAIN = """
def train(trial):
    x = trial.params["x"]
    return {"error": x, "cost": (1 - x) ** 2, } if x < 0.5 else {"error": x, "cost": 2.0}
"""


def test_all_trials_of_the_front_are_listed(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", TRAIN)
    study_folder.study(objectives={"error": "minimize", "cost": "minimize"}, budget={"trials": 8})
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    values = dict(
        study_folder.rows(
            "select t.number, p.param_value from trials t "
            "join trial_params p on p.trial_id = t.trial_id"
        )
    )
    # Below 0.5 one objective falls where the other rises; above, both are worse.
    front = sorted((number for number, x in values.items() if x < 0.5), key=values.__getitem__)
    assert 1 < len(front) < 8
    assert f"\nPareto front: {len(front)} trials\n" in ended.out
    rows = re.findall(r"^  (\d+) +([\d.]+) +([\d.]+) +x [\d.]+$", ended.out, re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == front
    assert [error for _, error, _ in rows] == [f"{values[number]:.6g}" for number in front]
    assert "\nbest:" not in ended.out
    assert ended.out.endswith(f"again: python -m tuner.best study.yaml --top {len(front)}\n")
    assert "(on the Pareto front)" in ended.out


def test_times_are_those_of_the_user(study_folder: StudyFolder) -> None:
    study_folder.study(budget={"trials": 1})
    study_folder.tune()
    (stored,) = study_folder.rows("select started_at from tuner_dispatchers")
    there = study_folder.tuner("studies", "study.yaml", env={"TZ": "Asia/Kolkata"})
    assert "started (IST)" in there.out
    assert _in_kolkata(stored[0]) in there.out
    (leased,) = study_folder.rows("select leased_at from tuner_attempts")
    why = study_folder.tuner("why", "study.yaml", "0", env={"TZ": "Asia/Kolkata"})
    assert f"{_in_kolkata(leased[0])} IST" in why.out


def _in_kolkata(stored: str) -> str:
    at = int(stored[11:13]) * 60 + int(stored[14:16]) + 330
    return f"{at // 60 % 24:02d}:{at % 60:02d}"
