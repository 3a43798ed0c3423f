"""A study that begins where an earlier one of the same database has found its best."""

from __future__ import annotations

import json

import yaml

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED

# The earlier study minimizes, the later one maximizes: each knows its own best.
TRAIN = """
def small(trial):
    return (trial.params["x"] - 0.3) ** 2 + trial.params["gone"] * 0.0

def train(trial):
    return -((trial.params["x"] - 0.3) ** 2)
"""
FLOAT = {"type": "float", "low": 0.0, "high": 1.0}


def two_studies(folder: StudyFolder) -> None:
    folder.write("forecast.py", TRAIN)
    storage = {"storage": "sqlite:///small.db"}
    folder.study(
        "earlier.yaml",
        study="earlier",
        trial={"function": "forecast:small"},
        search_space={"x": FLOAT, "gone": FLOAT},
        budget={"trials": 8},
        **storage,
    )
    folder.study(
        study="later",
        objectives={"value": "maximize"},
        trial={"function": "forecast:train"},
        search_space={"x": {**FLOAT, "high": 0.5}, "new": FLOAT},
        transfer="earlier",
        budget={"trials": 5},
        **storage,
    )


def best_x(folder: StudyFolder) -> float:
    (best,) = json.loads(
        folder.best("sqlite:///small.db", "--study", "earlier", "--format=json").out
    )
    return float(best["params"]["x"])


def xs_of_later(folder: StudyFolder) -> list[float]:
    rows = folder.rows(
        "select p.param_value from trial_params p join trials t using (trial_id) "
        "join studies s using (study_id) where s.study_name = 'later' and p.param_name = 'x' "
        "order by t.number"
    )
    return [x for (x,) in rows]


def test_the_first_trial_is_the_best_of_the_earlier_study(study_folder: StudyFolder) -> None:
    two_studies(study_folder)
    refused = study_folder.tune()
    assert refused.code == EXIT_BAD_INPUT
    assert "study.yaml: transfer names 'earlier', from which nothing can be taken:" in refused.err
    assert study_folder.tune(file="earlier.yaml").code == EXIT_BUDGET_REACHED
    x = best_x(study_folder)
    dry = yaml.safe_load(study_folder.tune("--dry-run", "--json").out)
    assert dry["transfer"]["studies"] == ["earlier"]
    assert dry["transfer"]["configurations"][0] == {"x": x}
    assert dry["first_launch_requests"][0]["assign"]["params"]["x"] == x
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "transfer: begins near 5 of the best configurations of earlier" in ended.out
    assert "transfer: gone is not searched here and is left out (of earlier)" in ended.out
    assert "transfer: new is new and is drawn at random (of earlier)" in ended.out
    assert xs_of_later(study_folder)[0] == x


def test_a_later_start_needs_the_earlier_study_no_more(study_folder: StudyFolder) -> None:
    two_studies(study_folder)
    study_folder.tune(file="earlier.yaml")
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    gone = study_folder.tuner("delete", "sqlite:///small.db", "--study", "earlier", "--yes")
    assert gone.code == 0, gone.text
    assert "earlier" in study_folder.tune("--dry-run").out
    again = study_folder.tune("--trials", "7")
    assert again.code == EXIT_BUDGET_REACHED, again.text
    assert "transfer: begins near 5 of the best configurations of earlier" in again.out
    assert len(xs_of_later(study_folder)) == 7
