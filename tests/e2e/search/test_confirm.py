"""Leaders run again at the end: `confirm` in the study file."""

from __future__ import annotations

import json
import signal
import sqlite3

import optuna
import pytest
import sqlalchemy as sa

import tuner
from tests.databases import ONE_SERVER_BY_DAY
from tests.e2e.study_folder import StudyFolder, wait_until
from tests.servers import Server
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED, EXIT_INTERRUPTED

# In one piece, the name `checkpoint_dir` would have torch imported ahead: two seconds a start.
TRAIN = """
import random, time
from pathlib import Path

def train(trial):
    noise = random.Random(trial.seed).gauss(0.0, 0.01)
    for step in range(1, 4):
        trial.report(trial.params["x"] + noise, step)
        if trial.should_prune():
            raise AssertionError("a leader that runs again is never pruned")
    print("seed", trial.seed)
    folder = getattr(trial, "check" + "point_dir")
    while ".confirm" in str(folder) and Path("hold").exists():
        time.sleep(0.02)
    return trial.params["x"] + noise
"""
RUNS = """
    select t.number, t.state, a.value_json from trials t
    join studies s on s.study_id = t.study_id
    join trial_user_attributes a on a.trial_id = t.trial_id and a.key = 'tuner:confirms'
    where s.study_name = 'small.confirm' order by t.number
"""


def a_study(folder: StudyFolder, **keys: object) -> None:
    folder.write("forecast.py", TRAIN)
    small: dict[str, object] = {
        "storage": "sqlite:///small.db",
        "objectives": {"value": "maximize"},
        "pruner": "none",
        "budget": {"trials": 6},
        "confirm": {"top": 2, "seeds": 3},
    }
    folder.study(**small | keys)


def held_runs(folder: StudyFolder) -> list[tuple[int, str, str]]:
    """Those of the leaders; none before there is a database."""
    try:
        return folder.rows(RUNS)
    except sqlite3.OperationalError:
        return []


def leaders(folder: StudyFolder) -> list[int]:
    study = optuna.load_study(study_name="small", storage=f"sqlite:///{folder.path}/small.db")
    trials = sorted(study.get_trials(deepcopy=False), key=lambda each: -(each.value or 0.0))
    assert all(each.state.is_finished() for each in trials)
    return [each.number for each in trials[:2]]


def test_leaders_run_again_and_best_tells(study_folder: StudyFolder) -> None:
    a_study(study_folder)
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    first, second = leaders(study_folder)
    runs = study_folder.rows(RUNS)
    assert [int(of) for _, _, of in runs] == [first, second] * 3
    assert {state for _, state, _ in runs} == {"COMPLETE"}
    assert len({each.seed for each in study_folder.attempts()}) == 6 + 6
    assert "run again: 6 of 6 runs done" in ended.out
    # The study itself has not grown.
    assert len(study_folder.rows("select 1 from trials where study_id = 1")) == 6
    found = json.loads(study_folder.best("study.yaml", "--top", "3", "--format", "json").out)
    assert {found[0]["trial_number"], found[1]["trial_number"]} == {first, second}
    assert found[2]["confirmed"] is None
    chances = [each["confirmed"]["probability_best"] for each in found[:2]]
    assert sum(chances) == pytest.approx(1.0)
    assert [each["confirmed"]["n_runs"] for each in found[:2]] == [3, 3]
    assert found[0]["confirmed"]["mean"] >= found[1]["confirmed"]["mean"]
    assert found[0]["confirmed"]["deviation"] > 0
    # Who names no study means the study, and not its runs.
    assert tuner.load_best(f"sqlite:///{study_folder.path}/small.db").study == "small"
    assert "run again: 6 of 6" in study_folder.tuner("status", "study.yaml").out


def test_same_file_again_runs_nothing_twice_and_more_trials_confirm_new_leaders(
    study_folder: StudyFolder,
) -> None:
    a_study(study_folder)
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    before = study_folder.rows(RUNS)
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    assert study_folder.rows(RUNS) == before
    a_study(study_folder, budget={"trials": 30})
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    of_each: dict[int, int] = {}
    for _, _, of in study_folder.rows(RUNS):
        of_each[int(of)] = of_each.get(int(of), 0) + 1
    assert set(of_each.values()) == {3}
    assert set(leaders(study_folder)) <= of_each.keys()


def test_killed_while_leaders_run_goes_on(study_folder: StudyFolder) -> None:
    a_study(study_folder)
    hold = study_folder.write("hold", "")
    running = study_folder.start()
    wait_until(lambda: "RUNNING" in {state for _, state, _ in held_runs(study_folder)}, "they run")
    running.signal(signal.SIGKILL)
    running.process.wait()
    hold.unlink()
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert [state for _, state, _ in study_folder.rows(RUNS)] == ["COMPLETE"] * 6
    assert len(study_folder.rows("select 1 from trials where study_id = 1")) == 6


def test_ctrl_c_while_leaders_run_is_an_interruption(study_folder: StudyFolder) -> None:
    a_study(study_folder, trial={"function": "forecast:train", "stop_grace": "1s"})
    hold = study_folder.write("hold", "")
    running = study_folder.start()
    wait_until(lambda: "RUNNING" in {state for _, state, _ in held_runs(study_folder)}, "they run")
    running.signal(signal.SIGINT)
    ended = running.wait()
    assert ended.code == EXIT_INTERRUPTED, ended.text
    assert "interrupted while leaders ran again" in ended.out
    hold.unlink()
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    assert [state for _, state, _ in study_folder.rows(RUNS)] == ["COMPLETE"] * 6


def test_stop_and_pause_of_the_study_reach_the_runs_of_its_leaders(
    study_folder: StudyFolder,
) -> None:
    a_study(study_folder, trial={"function": "forecast:train", "stop_grace": "1s"})
    hold = study_folder.write("hold", "")
    running = study_folder.start()
    wait_until(lambda: "RUNNING" in {state for _, state, _ in held_runs(study_folder)}, "they run")
    paused = study_folder.tuner("pause", "study.yaml")
    assert "Dispatchers: none" not in paused.out
    wait_until(lambda: "Paused: no trial starts" in running.out, "the runs are paused")
    asked = study_folder.tuner("stop", "study.yaml")
    assert asked.code == 0, asked.text
    ended = running.wait()
    assert ended.code == EXIT_INTERRUPTED, ended.text
    assert "interrupted while leaders ran again" in ended.out
    hold.unlink()
    assert study_folder.tuner("resume", "study.yaml").code == 0
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    assert [state for _, state, _ in study_folder.rows(RUNS)] == ["COMPLETE"] * 6


def test_an_exported_study_takes_the_runs_of_its_leaders_along(study_folder: StudyFolder) -> None:
    a_study(study_folder)
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    best = json.loads(study_folder.best("study.yaml", "--format", "json").out)
    assert study_folder.tuner("export", "study.yaml", "-o", "out.db").code == 0
    there = json.loads(study_folder.best("sqlite:///out.db", "--format", "json").out)
    assert there[0]["confirmed"] == best[0]["confirmed"]
    again = study_folder.tuner("import", "out.db", "study.yaml", "--as", "back")
    assert again.code == 0, again.text
    back = json.loads(
        study_folder.best("sqlite:///small.db", "--study", "back", "--format", "json").out
    )
    assert back[0]["confirmed"] == best[0]["confirmed"]
    refused = study_folder.tuner("import", "out.db", "study.yaml")
    assert refused.code == EXIT_BAD_INPUT


def test_command_runs_again_with_another_seed(study_folder: StudyFolder) -> None:
    study_folder.write("run.sh", 'echo "{\\"value\\": 0.$TUNER_SEED}"\n')
    study_folder.study(
        storage="sqlite:///small.db",
        trial={"command": ["sh", "run.sh"]},
        budget={"trials": 2},
        confirm={"top": 1, "seeds": 2},
    )
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    (best,) = json.loads(study_folder.best("study.yaml", "--format", "json").out)
    assert best["confirmed"]["n_runs"] == 2
    assert best["confirmed"]["deviation"] > 0
    assert best["confirmed"]["probability_best"] == 1.0


def test_name_of_the_runs_is_no_name_for_a_study(study_folder: StudyFolder) -> None:
    study_folder.study(study="small.confirm")
    ended = study_folder.tune()
    assert ended.code == EXIT_BAD_INPUT
    assert ended.err.startswith(
        "study.yaml: study is 'small.confirm', but studies of such names hold the runs of another "
        "one's leaders (confirm). Choose another name."
    )


def test_delete_takes_the_runs_along(study_folder: StudyFolder) -> None:
    a_study(study_folder)
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    ended = study_folder.tuner("delete", "study.yaml", "--study", "small", "--files", "--yes")
    assert ended.code == 0, ended.text
    assert study_folder.rows("select 1 from studies") == []
    assert list((study_folder.path / "tuner-files").iterdir()) == []


@pytest.mark.parametrize("kind", ONE_SERVER_BY_DAY)
def test_dispatchers_share_the_runs(
    study_folder: StudyFolder, request: pytest.FixtureRequest, kind: str
) -> None:
    server: Server = request.getfixturevalue(kind)
    study_folder.env["STORAGE"] = url = server.new_database()
    a_study(
        study_folder,
        storage="${STORAGE}",
        budget={"trials": 12},
        confirm={"top": 3, "seeds": 4},
    )
    fleet = [study_folder.start() for _ in range(3)]
    ended = [each.wait(timeout_s=180.0) for each in fleet]
    failed = [each.text for each in ended if each.code != EXIT_BUDGET_REACHED]
    assert failed == [], "\n".join(failed)
    storage = optuna.storages.RDBStorage(url, engine_kwargs={"poolclass": sa.NullPool})
    runs = optuna.load_study(study_name="small.confirm", storage=storage).get_trials()
    assert [each.state.name for each in runs] == ["COMPLETE"] * 12
    assert len({each.user_attrs["tuner:confirms"] for each in runs}) == 3
    assert len(optuna.load_study(study_name="small", storage=storage).get_trials()) == 12
    storage.engine.dispose()
    study_folder.end_all()
    server.drop_database(url)
