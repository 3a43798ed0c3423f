"""`tuner studies`, `status`, `trials` and those that change studies, as a user types them."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from typing import Any

import optuna
import pytest

from tests.e2e.study_folder import TIMEOUT_S, Ended, Running, StudyFolder, wait_until
from tuner.errors import (
    EXIT_BAD_INPUT,
    EXIT_BUDGET_REACHED,
    EXIT_INTERRUPTED,
    EXIT_STUDY_FAILED,
)

STOPPED = 3
VERBS = ("studies", "status", "trials", "export", "import", "enqueue", "copy", "delete")
#: Trial 3 fails; trials end once the file `go` is there.
WAITING = """
import time
from pathlib import Path

def train(trial):
    trial.report(trial.params["x"], 1, loss=0.5)
    while not Path("go").exists():
        time.sleep(0.02)
    if trial.number == 3:
        raise ValueError("boom")
    return trial.params["x"]
"""
SPACE = {
    "x": {"type": "float", "low": 0.0, "high": 1.0},
    "kind": {"type": "categorical", "choices": ["a", "b"]},
    "epochs": 3,
}


def fine(ended: Ended, code: int = 0) -> str:
    assert (ended.code, ended.err) == (code, ""), ended
    return ended.out


def refused(ended: Ended, message: str, code: int = EXIT_BAD_INPUT) -> None:
    assert (ended.code, ended.out) == (code, ""), ended
    assert re.search(message, ended.err), ended.err
    assert "Traceback" not in ended.err


@pytest.fixture
def done(study_folder: StudyFolder) -> StudyFolder:
    """Six trials of a study, one of which has failed."""
    study_folder.write("forecast.py", WAITING)
    (study_folder.path / "go").touch()
    study_folder.study(search_space=SPACE, budget={"trials": 6})
    fine(study_folder.tune(), EXIT_BUDGET_REACHED)
    return study_folder


@pytest.fixture
def busy(study_folder: StudyFolder) -> StudyFolder:
    """A study whose first two trials run until the file `go` is there."""
    study_folder.write("forecast.py", WAITING)
    study_folder.study(search_space=SPACE, budget={"trials": 6})
    return study_folder


def start(folder: StudyFolder) -> Running:
    """Returns when both trials have reported, and that is stored."""
    running = folder.start()
    wait_until(lambda: n_reports(folder) == 2, "both trials have reported")
    return running


def n_reports(folder: StudyFolder) -> int:
    try:
        return len(folder.rows("select 1 from trial_intermediate_values"))
    except sqlite3.OperationalError:
        return 0


def trials_of(folder: StudyFolder, *words: str) -> list[dict[str, Any]]:
    found = json.loads(fine(folder.tuner("trials", *words, "--json")))
    assert isinstance(found, list)
    return found


# -- when all has ended ----------------------------------------------------------------------


def test_finished_study_is_shown(done: StudyFolder) -> None:
    check_studies(done)
    check_status(done)
    check_trials(done)


def check_studies(folder: StudyFolder) -> None:
    header, line = fine(folder.tuner("studies")).splitlines()
    assert header.startswith("study  objectives        trials  ")
    assert line.startswith("small  value (minimize)  6: 5 completed, 1 failed  value ")
    for source in ("small.db", "sqlite:///small.db"):
        assert "5 completed, 1 failed" in fine(folder.tuner("studies", source))


def check_status(folder: StudyFolder) -> None:
    lines = fine(folder.tuner("status")).splitlines()
    assert lines[0] == "study small: finished (budget reached: 6 trials)"
    assert lines[1].startswith("program: ")
    assert lines[4].startswith("spent: 6 of 6 trials begun, ")
    found = json.loads(fine(folder.tuner("status", "small.db", "--json")))
    assert (found["standing"], found["exit_code"], found["running"]) == ("finished", 0, [])


def check_trials(folder: StudyFolder) -> None:
    lines = fine(folder.tuner("trials")).splitlines()
    assert len(lines) == 7
    assert re.match(r"3 +failed +- +[\d.]+ s  cpu:\d  1 +x 0\.\d+, kind [ab], epochs 3$", lines[4])
    whole = trials_of(folder, "--reports")
    assert [each["number"] for each in whole] == list(range(6))
    assert whole[0]["reports"] == {"1": whole[0]["params"]["x"]}
    assert "ValueError: boom" in whole[3]["attempts"][0]["detail"]
    best = trials_of(folder, "--top", "2")
    values = sorted(each["values"]["value"] for each in whole if each["values"])
    assert [each["values"]["value"] for each in best] == values[:2]
    assert [each["number"] for each in trials_of(folder, "--last", "2")] == [4, 5]
    assert [each["number"] for each in trials_of(folder, "--state", "failed")] == [3]
    rows = list(csv.DictReader(io.StringIO(fine(folder.tuner("trials", "--csv")))))
    assert [float(row["params_x"]) for row in rows] == [each["params"]["x"] for each in whole]


def test_export_and_import(done: StudyFolder) -> None:
    out = fine(done.tuner("export", "-o", "kept.db"))
    assert out == "Study 'small' with 6 trials is in kept.db.\n"
    before = trials_of(done)
    assert trials_of(done, "kept.db") == before
    refused(done.tuner("export", "-o", "kept.db"), "kept.db: exists already")
    refused(done.tuner("import", "kept.db"), "has a study 'small' already. Give it another .* --as")
    assert "'twin' with 6 trials" in fine(
        done.tuner("import", "kept.db", "small.db", "--as", "twin")
    )
    assert trials_of(done, "small.db", "--study", "twin") == [
        {**each, "attempts": renumbered(each["attempts"])} for each in before
    ]
    fine(done.tuner("delete", "--yes"))
    fine(done.tuner("import", "kept.db"))
    again = trials_of(done)
    assert [each["params"] for each in again] == [each["params"] for each in before]
    # It is the same study still: the same command continues it.
    fine(done.tune("--trials", "7"))
    assert len(trials_of(done)) == 7
    assert not list(done.path.glob("*.part"))


def renumbered(attempts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**each, "dispatcher_id": 2} for each in attempts]


def test_import_from_optuna(study_folder: StudyFolder) -> None:
    url = f"sqlite:///{study_folder.path}/theirs.db"
    study = optuna.create_study(storage=url, study_name="theirs")
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    study.ask()
    study._storage._backend.engine.dispose()  # type: ignore[attr-defined]
    study_folder.study(study="theirs", budget={"trials": 5})
    fine(study_folder.tuner("import", "theirs.db", "sqlite:///theirs-too.db"))
    fine(study_folder.tuner("studies", "theirs.db"))
    study_folder.study(study="theirs", storage="sqlite:///theirs-too.db", budget={"trials": 5})
    fine(study_folder.tune(), EXIT_BUDGET_REACHED)
    found = trials_of(study_folder)
    assert [each["state"] for each in found] == ["completed"] * 5
    assert [len(each["attempts"]) for each in found] == [0, 0, 0, 1, 1]


def test_enqueued_configurations_run_first(study_folder: StudyFolder) -> None:
    study_folder.study(search_space=SPACE, devices="cpu:1", budget={"trials": 3})
    study_folder.write("first.csv", "x,kind\n0.25,b\n0.75,\n")
    out = fine(study_folder.tuner("enqueue", "--params", "first.csv"))
    assert out == "Trials 0, 1 of study 'small' wait to be tried first.\n"
    assert [each["params"]["x"] for each in trials_of(study_folder)] == [0.25, 0.75]
    again = fine(study_folder.tuner("enqueue", "--params", "{x: 0.75}", "--skip-existing"))
    assert again.startswith("Nothing new to try in study 'small'. 1 configuration left out")
    ended = study_folder.tune()
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    assert re.search(r"^trial 0: started on cpu:0: x 0\.25, kind b, epochs 3$", ended.out, re.M)
    assert re.search(r"^trial 1: started on cpu:0: x 0\.75, kind [ab]", ended.out, re.M)
    assert len(trials_of(study_folder)) == 3


def test_best_of_one_study_is_tried_in_another(done: StudyFolder) -> None:
    done.write("best.yaml", fine(done.best("--top", "2")))
    done.write("top.csv", fine(done.tuner("trials", "--top", "2", "--csv")))
    done.study(file="other.yaml", study="other", search_space=SPACE)
    fine(done.tuner("enqueue", "other.yaml", "--params", "best.yaml"))
    out = fine(done.tuner("enqueue", "other.yaml", "--params", "top.csv", "--skip-existing"))
    assert out.startswith("Nothing new to try in study 'other'. 2 configurations left out")


def test_enqueue_names_every_mistake(done: StudyFolder) -> None:
    done.write("wrong.yaml", "- {x: 2, kind: c}\n- {y: 1}\n")
    ended = done.tuner("enqueue", "--params", "wrong.yaml")
    assert (ended.code, ended.out) == (EXIT_BAD_INPUT, "")
    assert ended.err.splitlines() == [
        "wrong.yaml, configuration 1: x is 2, but goes from 0 to 1.",
        "wrong.yaml, configuration 1: kind is 'c', but must be one of a, b.",
        "wrong.yaml, configuration 2: y is no parameter of this study. There are x, kind, epochs.",
    ]
    assert len(trials_of(done)) == 6
    out = fine(done.tuner("enqueue", "--params", "{x: 0.5}"))
    assert "To try all: python -m tuner.run study.yaml --study small --trials 7" in out


def test_copy_continues_with_a_changed_space(done: StudyFolder) -> None:
    values = [each["params"]["x"] for each in trials_of(done) if each["values"]]
    middle = sorted(values)[2]
    narrow = {**SPACE, "x": {"type": "float", "low": 0.0, "high": middle}}
    done.study(file="narrow.yaml", search_space=narrow, storage="sqlite:///small.db")
    out = fine(done.tuner("copy", "--space", "narrow.yaml", "--to", "narrow"))
    assert out.splitlines() == [
        "3 trials of study 'small' copied to the new study 'narrow' in "
        f"sqlite:///{done.path}/small.db.",
        "2 trials left out:",
        "  2: x is outside of its new range",
        "Not copied, without a result: 1 trial.",
        "To continue: python -m tuner.run narrow.yaml --study narrow",
        "Its budget of 4 trials counts the copied ones too.",
    ]
    fine(done.tune("--study", "narrow", file="narrow.yaml"), EXIT_BUDGET_REACHED)
    found = trials_of(done, "small.db", "--study", "narrow")
    assert len(found) == 4
    assert all(each["params"]["x"] <= middle for each in found)
    words = ("copy", "--space", "narrow.yaml", "--to", "narrow")
    refused(done.tuner(*words), "has a study 'narrow' already. Give --to another name")


def test_delete_asks_and_takes_all(done: StudyFolder) -> None:
    refused(done.tuner("delete"), r"6 trials, 6 attempts\?\nThere is no terminal .* --yes")
    refused(done.tuner("delete", "small.db", "--yes"), "Name the study to delete: --study NAME")
    words = ["-c", "from tuner.cli.main import main; main()", "delete", "--files"]
    code, drawn = answer(done, words, "n\n")
    assert (code, "Nothing was deleted." in drawn) == (1, True)
    code, drawn = answer(done, words, "\x03")
    assert (code, "Interrupted. A study goes as a whole" in drawn) == (EXIT_INTERRUPTED, True)
    assert len(trials_of(done)) == 6
    code, drawn = answer(done, words, "y\n")
    assert code == 0, drawn
    assert re.search(r"Deleted: study 'small', 6 trials, 6 attempts, and \d+ files? \(", drawn)
    assert not (done.path / "tuner-files" / "small").exists()
    assert fine(done.tuner("studies")).endswith("small.db holds no study yet.\n")
    assert done.rows("select 1 from trials union select 1 from tuner_events") == []


def answer(folder: StudyFolder, words: list[str], keys: str) -> tuple[int, str]:
    """Types keys into a question."""
    script = (
        "import os, pty, select, sys, time\n"
        "pid, terminal = pty.fork()\n"
        "if not pid:\n"
        "    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])\n"
        "drawn = b''\n"
        "is_asked = False\n"
        "while True:\n"
        # readline misses a signal that comes just before it waits: who sees nothing types again.
        "    if not select.select([terminal], [], [], 10.0)[0] and is_asked:\n"
        "        os.write(terminal, sys.argv[1].encode())\n"
        "        continue\n"
        "    try:\n"
        "        new = os.read(terminal, 65536)\n"
        "    except OSError:\n"
        "        break\n"
        "    if not new:\n"
        "        break\n"
        "    drawn += new\n"
        "    if not is_asked and b'[y/N]' in drawn:\n"
        "        is_asked = True\n"
        "        os.write(terminal, sys.argv[1].encode())\n"
        "sys.stdout.write(drawn.decode())\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, keys, *words],
        cwd=folder.path,
        env=folder.environment({"TERM": "xterm", "COLUMNS": "300"}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


# -- from a second terminal, while the study runs ----------------------------------------------


def test_running_study_is_shown(busy: StudyFolder) -> None:
    running = start(busy)
    (line,) = fine(busy.tuner("studies")).splitlines()[1:]
    assert re.search(rf"  2: 2 running +- +\S+ \({running.process.pid}, \d+ s ago\)", line)
    out = fine(busy.tuner("status"))
    assert re.search(rf"^study small: running \(\S+ \(pid {running.process.pid}\)\)\n", out)
    assert re.search(r"^0 +1 +\S+ cpu:\d +[\d.]+ s +1 +value 0\.\d+$", out, re.M)
    found = json.loads(fine(busy.tuner("status", "--json")))
    assert [(each["trial"], each["step"]) for each in found["running"]] == [(0, 1), (1, 1)]
    assert found["dispatchers"][0]["is_alive"]
    assert [each["state"] for each in trials_of(busy)] == ["running"] * 2
    assert [each["number"] for each in trials_of(busy, "--state", "running")] == [0, 1]
    let_go(busy, running)


def test_running_study_may_be_exported_and_copied_but_not_deleted(busy: StudyFolder) -> None:
    running = start(busy)
    refused(busy.tuner("delete", "--yes"), rf"is being run, on \S+ \(pid {running.process.pid}, ")
    fine(busy.tuner("export", "-o", "now.db"))
    assert [each["state"] for each in trials_of(busy, "now.db")] == ["waiting"] * 2
    fine(busy.tuner("import", "now.db", "small.db", "--as", "twin"))
    refused(busy.tuner("copy", "--to", "second"), "has no trial that has completed")
    fine(busy.tuner("delete", "small.db", "--study", "twin", "--yes"))
    let_go(busy, running)
    assert [each["state"] for each in trials_of(busy)] == [
        *("completed", "completed", "completed", "failed", "completed", "completed")
    ]


def test_enqueued_while_it_runs_is_kept(busy: StudyFolder) -> None:
    running = start(busy)
    out = fine(busy.tuner("enqueue", "--params", "{x: 0.125, kind: b}"))
    assert out == "Trial 2 of study 'small' waits to be tried first.\n"
    let_go(busy, running)
    trial = trials_of(busy)[2]
    assert (trial["params"]["x"], trial["params"]["kind"]) == (0.125, "b")


def test_killed_dispatcher_is_told(busy: StudyFolder) -> None:
    running = start(busy)
    os.kill(running.process.pid, signal.SIGKILL)
    running.wait()
    ended = busy.tuner("status")
    assert ended.code == STOPPED
    assert ended.out.startswith(
        "study small: stopped (no dispatcher is alive, 0 of 6 trials are done)"
    )
    assert ended.out.count("(its dispatcher died)") == 2
    fine(busy.tuner("delete", "--yes"))


def test_study_of_failures_has_failed(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", "def train(trial):\n    raise ValueError('boom')\n")
    study_folder.study(budget={"trials": 2})
    assert study_folder.tune().code == EXIT_STUDY_FAILED
    out = fine(study_folder.tuner("status"), EXIT_STUDY_FAILED)
    assert out.startswith("study small: failed (budget reached: 2 trials; every trial has failed)")


def let_go(folder: StudyFolder, running: Running) -> None:
    (folder.path / "go").touch()
    ended = running.wait()
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, ""), ended


# -- what is not there -------------------------------------------------------------------------


def test_nothing_there(study_folder: StudyFolder) -> None:
    refused(study_folder.tuner("trials"), r"study.yaml: there is no such file")
    study_folder.study()
    refused(study_folder.tuner("status"), r"There is no database at .*small\.db yet")
    assert study_folder.files() == {"forecast.py", "study.yaml"}


def test_wrong_study(done: StudyFolder) -> None:
    refused(done.tuner("trials", "--study", "smal"), r"has no study 'smal'. Did you mean 'small'\?")


def test_reader_that_goes_away_is_no_accident(done: StudyFolder) -> None:
    tuner = "import sys; sys.argv[0] = 'tuner'; from tuner.cli.main import main; main()"
    command = f'{sys.executable} -c "{tuner}" trials --json | head -1'
    ended = subprocess.run(
        ["sh", "-c", command],
        cwd=done.path,
        env=done.environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (ended.stdout, ended.stderr) == ("[\n", "")


def test_verbs_are_in_the_help_and_the_start_stays_quick(study_folder: StudyFolder) -> None:
    out = fine(study_folder.tuner("--help"))
    assert all(re.search(rf"^│ {verb} ", out, re.M) for verb in VERBS)
    rooms = ("tuner.queries.", "tuner.actions", "tuner.terminal.tables", "tuner.terminal.wording")
    # The names of formats are a part of the help.
    light = {"tuner.queries.results", "tuner.queries.results.format_names"}
    loaded = f"[m for m in sys.modules if m.startswith({rooms}) and m not in {light}]"
    heavy = f"import sys, tuner.cli.main; print({loaded})"
    assert fine(study_folder.python("-c", heavy)) == "[]\n"
