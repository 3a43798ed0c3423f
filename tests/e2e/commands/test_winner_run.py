"""`tuner run --best`: the winner is trained once more, and its checkpoint stays."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from tests.e2e.study_folder import StudyFolder, wait_until
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED, EXIT_INTERRUPTED

#: Trials of the search end at once; that of the winner waits at its third step for the file `go`.
SAVES = """
import time
from pathlib import Path

import optuna

def train(trial):
    x = trial.params["x"]
    first = (trial.load_checkpoint() or {"epoch": -1})["epoch"] + 1
    print("begins at", first)
    for epoch in range(first, 4):
        trial.save_checkpoint({"epoch": epoch}, epoch)
        trial.report(x, epoch)
        while epoch == 2 and ".best-" in str(trial.checkpoint_dir) and not Path("go").exists():
            if trial.should_prune():
                raise optuna.TrialPruned
            time.sleep(0.02)
    return x
"""
PRINTS = """
import sys
print('{"value": %s, "devices": %s}' % tuple(sys.argv[1:3]))
open(sys.argv[3] + "/model.bin", "w").write("weights")
"""


def winner_of(folder: StudyFolder) -> tuple[int, float]:
    return folder.rows(
        "select t.number, p.param_value from trials t join trial_params p using (trial_id) "
        "join trial_values v using (trial_id) order by v.value limit 1"
    )[0]


def test_the_winner_is_trained_interrupted_and_resumed(study_folder: StudyFolder) -> None:
    folder = study_folder
    folder.write("forecast.py", SAVES)
    folder.study(devices="cpu:1", pruner="none", budget={"trials": 2})
    assert folder.tune().code == EXIT_BUDGET_REACHED
    number, x = winner_of(folder)
    name = f"small.best-{number}"
    logs = folder.path / "tuner-files" / name / "trial-0"

    running = folder.start("--best")
    begun = re.compile(r"^trial 0: started on cpu:0: x ", re.MULTILINE)
    wait_until(lambda: bool(begun.search(running.out)), "the winner trains")
    wait_until(lambda: any((logs / "checkpoints").glob("step-2*")), "it has saved twice")
    running.signal(signal.SIGINT)
    ended = running.wait()
    assert ended.code == EXIT_INTERRUPTED, ended.text
    assert f"Training the winner of study 'small' (trial {number}: x {x:.4g})" in ended.out
    assert "Stopped; everything is saved. To continue: python -m tuner.run study.yaml --best" in (
        ended.out
    )

    folder.write("go", "")
    ended = folder.tune("--best")
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    assert "begins at 3" in (logs / "attempt-2.log").read_text()
    path = Path(ended.out.rpartition("checkpoint: ")[2].strip())
    assert path == logs / "checkpoints" / "step-3.pt"
    assert path.is_file()
    assert f"again: python -m tuner.best study.yaml --study {name}\n" in ended.out
    assert f"study: {name}\n" in folder.best("study.yaml", "--study", name).out

    # The search has its own trials and its own winner; once trained is enough.
    query = "select study_name, count(*) from trials join studies using (study_id) group by 1"
    assert dict(folder.rows(query)) == {"small": 2, name: 1}
    assert f"study: small\ntrial_number: {number}\n" in folder.best("small.db").out.replace(
        "- ", "", 1
    ).replace("\n  ", "\n")
    ended = folder.tune("--best")
    assert (ended.code, f"checkpoint: {path}\n" in ended.out) == (EXIT_BUDGET_REACHED, True)
    assert len(list(logs.glob("attempt-*.log"))) == 2


def test_a_command_gets_all_devices(study_folder: StudyFolder) -> None:
    study_folder.write("train.py", PRINTS)
    command = ["python", "train.py", "{x}", "{gpus}", "{checkpoint_dir}"]
    study_folder.study(
        trial={"command": command, "resources": {"cpus": 1}}, devices="cpu:3", budget={"trials": 2}
    )
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    ended = study_folder.tuner("run", "--best")
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    assert "trial 0: started on cpu:0, cpu:1, cpu:2: x " in ended.out
    number, _ = winner_of(study_folder)
    root = study_folder.path / "tuner-files" / f"small.best-{number}" / "trial-0"
    assert f"checkpoint: files in {root / 'checkpoints'}\n" in ended.out
    assert '"devices": 3' in (root / "attempt-1.log").read_text()


def test_without_a_winner_it_says_so(study_folder: StudyFolder) -> None:
    study_folder.study(objectives={"a": "minimize", "b": "minimize"})
    ended = study_folder.tune("--best")
    assert (ended.code, ended.out) == (EXIT_BAD_INPUT, "")
    assert ended.err.startswith("study.yaml: --best needs one objective, but the study has 2")
    study_folder.study()
    ended = study_folder.tune("--best")
    assert (ended.code, "There is no database" in ended.err) == (EXIT_BAD_INPUT, True)
    ended = study_folder.tune("--best", "--trials", "3")
    assert ended.err == "--trials does not go with --best, which trains one trial. Leave it out.\n"
