"""A program that suggests its parameters itself, as those written for Optuna do."""

from __future__ import annotations

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BUDGET_REACHED

#: Best with two layers of 20 and 50 units.
PROGRAM = """
def train(trial):
    layers = trial.suggest_int("layers", 1, 3)
    units = [trial.suggest_int(f"units_{k}", 8, 64) for k in range(layers)]
    far = sum(abs(each - best) for each, best in zip(units, (20, 50, 30)))
    return abs(layers - 2) + far / 56
"""
PARAMS = """
    select t.number, p.param_name, p.param_value from trials t
    join trial_params p on p.trial_id = t.trial_id order by t.number, p.param_name
"""


def params_of(folder: StudyFolder) -> list[dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for number, name, value in folder.rows(PARAMS):
        found.setdefault(number, {})[name] = value
    return [found[number] for number in sorted(found)]


def test_it_is_searched_by_the_model_with_the_layers_that_a_trial_has(
    study_folder: StudyFolder,
) -> None:
    study_folder.write("forecast.py", PROGRAM)
    study_folder.study(
        search_space=None, sampler={"seed": 3}, devices="cpu:1", budget={"trials": 40}
    )
    told = study_folder.tune("--dry-run")
    assert "sampler: curve_gp" in told.out
    assert study_folder.tune("--trials", "24").code == EXIT_BUDGET_REACHED
    # A later start knows of the space what the trials tell.
    assert study_folder.tune("--trials", "40").code == EXIT_BUDGET_REACHED

    params = params_of(study_folder)
    assert len(params) == 40
    for each in params:
        assert each.keys() == {"layers", *(f"units_{k}" for k in range(int(each["layers"])))}
    beginning = sorted(each["units_0"] for each in params[:8])
    octiles = [int((value - 8) / 57 * 8) for value in beginning]
    assert octiles == list(range(8)), "one in each eighth of the range"
    later = [each for each in params[24:] if each["layers"] == 2]
    near = [each for each in later if abs(each["units_1"] - 50) <= 7]
    # At random one in four, and two layers in one of three.
    assert len(later) > 8
    assert len(near) > len(later) / 2
    (best,) = study_folder.rows("select min(value) from trial_values")[0]
    assert best < 0.15
