"""Each example, copied to a folder of the user's own and started as its README says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

import tuner
from tests.e2e.study_folder import REPOSITORY, Ended, StudyFolder

pytestmark = pytest.mark.programs

EXAMPLES = REPOSITORY / "examples"
TWO_SLOTS = ("--set", "devices=cpu:2")

Example = Callable[[str], StudyFolder]


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Example]:
    """Copies an example by its name."""
    copies = []

    def copy(name: str) -> StudyFolder:
        path = tmp_path / name
        shutil.copytree(EXAMPLES / name, path, ignore=shutil.ignore_patterns("tuner-files", "*.db"))
        copies.append(StudyFolder(path=path))
        return copies[-1]

    yield copy
    for folder in copies:
        folder.end_all()


def _tune(folder: StudyFolder, *words: str, file: str = "study.yaml") -> str:
    ended = folder.tune(*words, *TWO_SLOTS, file=file)
    assert ended.code == 0, ended.text
    assert "Traceback" not in ended.text
    return ended.text


def _python(folder: StudyFolder, *words: str, env: dict[str, str]) -> Ended:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder.path,
        env=folder.environment(env),
        capture_output=True,
        text=True,
        check=False,
    )
    return Ended(code=done.returncode, out=done.stdout, err=done.stderr)


def _study(folder: StudyFolder, name: str, database: str) -> optuna.Study:
    """As any user of Optuna reads it; each trial left a log."""
    study = optuna.load_study(study_name=name, storage=f"sqlite:///{folder.path / database}")
    for trial in study.trials:
        assert _log(folder, name, trial.number).is_file()
    return study


def _log(folder: StudyFolder, study: str, number: int) -> Path:
    return folder.path / "tuner-files" / study / f"trial-{number}" / "attempt-1.log"


def _best(folder: StudyFolder, *words: str) -> list[dict[str, object]]:
    ended = folder.best(*words, "--format", "json")
    assert ended.code == 0, ended.text
    configurations: list[dict[str, object]] = json.loads(ended.out)
    return configurations


def _completed(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(states=(TrialState.COMPLETE,))


#: Never below 0.94 on the validation data, and never above 0.9.
GOOD = {"alpha": 1e-3, "penalty": "l2", "learning_rate": "constant", "eta0": 1e-2}
WEAK = {**GOOD, "alpha": 0.1, "penalty": "elasticnet", "l1_ratio": 0.9, "eta0": 0.1}


def test_unmodified_optuna_objective_runs_under_the_tuner(example: Example) -> None:
    folder = example("optuna_objective")
    storage = f"sqlite:///{folder.path / 'breast_cancer.db'}"
    begun = optuna.create_study(study_name="breast-cancer", storage=storage, direction="maximize")
    for params in (GOOD, WEAK):
        begun.enqueue_trial(params)
    # What Optuna began goes on here.
    _tune(folder, "--trials", "4", "--set", "pruner={name: threshold, lower: 0.92}")

    study = _study(folder, "breast-cancer", "breast_cancer.db")
    assert len(study.trials) == 4
    assert [trial.params for trial in study.trials[:2]] == [GOOD, WEAK]
    good, weak = study.trials[:2]
    assert (good.state, weak.state) == (TrialState.COMPLETE, TrialState.PRUNED)
    assert list(weak.intermediate_values) == [1]
    for trial in study.trials:
        assert ("l1_ratio" in trial.params) == (trial.params["penalty"] == "elasticnet")
        assert ("eta0" in trial.params) == (trial.params["learning_rate"] == "constant")
    for trial in _completed(study):
        assert sorted(trial.intermediate_values) == list(range(1, 21))
        assert trial.value == trial.intermediate_values[20]
        assert trial.user_attrs["train_accuracy"] > 0.8
        assert 1 <= trial.user_attrs["n_weights_used"] <= 30
    assert "train_accuracy" not in weak.user_attrs
    (best,) = _best(folder, "study.yaml")
    assert (best["trial_number"], best["params"]) == (study.best_trial.number, study.best_params)


def test_the_same_objective_runs_by_optuna_alone(example: Example) -> None:
    folder = example("optuna_objective")
    imported = re.findall(
        r"^(?:import|from) (\w+)", (folder.path / "objective.py").read_text(), re.M
    )
    assert set(imported) == {"optuna", "sklearn"}
    alone = _python(folder, "objective.py", env={"PYTHONPATH": ""})
    assert alone.code == 0, alone.text
    assert float(re.findall(r"best accuracy: ([\d.]+)", alone.out)[0]) > 0.9
    assert folder.files() == {"objective.py", "study.yaml"} | folder.files() & {"__pycache__"}


def test_command_with_a_pattern(example: Example) -> None:
    folder = example("command")
    _tune(folder, "--trials", "2")
    study = _study(folder, "wine-command", "wine.db")
    assert len(_completed(study)) == len(study.trials) == 2
    for trial in study.trials:
        assert ("l1_ratio" in trial.params) == (trial.params["penalty"] == "elasticnet")
        printed = re.findall(
            r"accuracy ([\d.]+)", _log(folder, study.study_name, trial.number).read_text()
        )
        curve = [value for _, value in sorted(trial.intermediate_values.items())]
        assert sorted(trial.intermediate_values) == list(range(1, 11))
        assert curve == [float(value) for value in printed]
        assert trial.value == curve[-1]
    (best,) = _best(folder, "study.yaml")
    assert best["params"] == {"epochs": 10, **study.best_params}


def test_command_with_json_lines_and_environment_variables(example: Example) -> None:
    folder = example("command")
    _tune(folder, "--trials", "2", file="json_lines.yaml")
    study = _study(folder, "diabetes-command", "diabetes.db")
    assert len(_completed(study)) == len(study.trials) == 2
    for trial in study.trials:
        lines = _log(folder, study.study_name, trial.number).read_text().splitlines()
        errors = {each["step"]: each["error"] for each in map(json.loads, lines)}
        assert trial.intermediate_values == pytest.approx(errors)
        assert trial.value == pytest.approx(errors[10])
    # What came beside the objective is a curve too.
    names = "select name, count(*) from tuner_metrics group by name"
    assert folder.rows(names, database="diabetes.db") == [("r2", 20)]
    (best,) = _best(folder, "json_lines.yaml")
    assert best["values"] == {"error": study.best_value}
    exports = folder.best("json_lines.yaml", "--format", "env").out
    assert f"export TUNER_PARAM_ALPHA={study.best_params['alpha']}" in exports.splitlines()


@pytest.mark.skipif(shutil.which("awk") is None, reason="needs awk")
def test_command_in_another_language(example: Example) -> None:
    folder = example("command")
    text = _tune(folder, file="awk.yaml")
    assert "every configuration of the space was tried" in text
    study = _study(folder, "iris-awk", "iris.db")
    assert len(_completed(study)) == len(study.trials)
    tried = {(trial.params["k"], trial.params["p"]) for trial in study.trials}
    assert tried == {(k, p) for k in (1, 5, 9) for p in (1, 2)}
    # What scikit-learn's KNeighborsClassifier finds, leaving out one flower at a time.
    known = {(t.params["k"], t.params["p"]): t.value for t in study.trials}
    assert known[1, 2] == pytest.approx(0.96, abs=1e-5)


def test_one_script_under_the_tuner_and_alone(example: Example) -> None:
    folder = example("script_with_current")
    _tune(folder, "--trials", "2", "--set", "pruner=none")
    study = _study(folder, "wine-script", "wine.db")
    assert len(_completed(study)) == len(study.trials) == 2
    for trial in study.trials:
        assert sorted(trial.intermediate_values) == list(range(1, 16))
        assert trial.value == trial.intermediate_values[15]
        saved = folder.path / f"tuner-files/wine-script/trial-{trial.number}/checkpoints"
        assert {path.name for path in saved.iterdir()} == {"step-14.pt", "step-15.pt"}
    names = "select name, count(*) from tuner_metrics group by name"
    assert folder.rows(names, database="wine.db") == [("loss", 30)]

    # Alone it has the best configuration, whose network alone the checkpoint fits, and goes on
    # where that one stands.
    number = study.best_trial.number
    saved = folder.path / f"tuner-files/wine-script/trial-{number}/checkpoints/step-14.pt"
    folder.write(f"checkpoints/trial-{number}/step-14.pt", "")
    shutil.copy(saved, folder.path / f"checkpoints/trial-{number}/step-14.pt")
    alone = _python(folder, "train.py", env={"TUNER_STORAGE": "sqlite:///wine.db"})
    assert alone.code == 0, alone.text
    first, *rest = alone.out.splitlines()
    assert first == f"trial {number} on cpu: { {**study.best_params, 'epochs': 15} }"
    assert [line.partition(":")[0] for line in rest] == ["step 15"]
    assert len(_study(folder, "wine-script", "wine.db").trials) == 2


def test_final_model_is_trained_with_the_best(example: Example) -> None:
    folder = example("train_with_best")
    commit = _commit(folder.path)
    _tune(folder, "--trials", "2", "--set", "pruner=none", "--set", "search_space.epochs=2")
    study = _study(folder, "digits-mlp", "digits.db")
    assert len(_completed(study)) == len(study.trials) == 2
    best = tuner.load_best(f"sqlite:///{folder.path / 'digits.db'}", "digits-mlp")
    assert (best.trial_number, best.value) == (study.best_trial.number, study.best_value)
    assert best.params == {"batch_size": 64, "epochs": 2, **study.best_params}

    final = folder.python("final.py")
    assert final.code == 0, final.text
    torch = pytest.importorskip("torch")  # Takes seconds, which the other tests need not pay.
    saved = torch.load(folder.path / "digits.pt", weights_only=True)
    assert saved["origin"] == {
        "study": "digits-mlp",
        "trial_number": best.trial_number,
        "params": best.params,
        "accuracy": best.value,
        "seed": folder.rows(
            "select seed from tuner_attempts join trials using (trial_id) where trials.number = ?",
            best.trial_number,
            database="digits.db",
        )[0][0],
        "git_commit": commit,
    }
    assert saved["model"]["0.weight"].shape == (best.params["width"], 64)


def _commit(folder: Path) -> str:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        return subprocess.run(
            ["git", *identity, *words],
            cwd=folder,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "my training")
    return git("rev-parse", "HEAD")


def test_several_objectives_give_a_front(example: Example) -> None:
    folder = example("several_objectives")
    _tune(folder, "--trials", "5")
    study = _study(folder, "digits-forest", "forest.db")
    assert [direction.name for direction in study.directions] == ["MAXIMIZE", "MINIMIZE"]
    assert study.metric_names == ["accuracy", "size_kb"]
    assert len(_completed(study)) == len(study.trials) == 5
    for trial in study.trials:
        accuracy, size_kb = trial.values
        assert 0.1 < accuracy <= 1
        assert size_kb > 1
        assert trial.user_attrs["latency_ms"] > 0
    best = _best(folder, "study.yaml", "--top", "10")
    assert {each["trial_number"] for each in best} == {each.number for each in study.best_trials}
    accuracies = [each["values"]["accuracy"] for each in best]  # type: ignore[index]
    assert accuracies == sorted(accuracies, reverse=True)


def test_space_by_a_function_feeds_a_command(example: Example) -> None:
    folder = example("define_by_run_space")
    _tune(folder, "--trials", "2", "--set", "pruner=none")
    study = _study(folder, "digits-layers", "layers.db")
    assert len(_completed(study)) == len(study.trials) == 2
    for trial in study.trials:
        widths = [trial.params[f"width_{n}"] for n in range(trial.params["n_layers"])]
        assert widths == sorted(widths, reverse=True)
        assert len(trial.params) == 2 + len(widths)
        first = _log(folder, study.study_name, trial.number).read_text().splitlines()[0]
        assert first == f"layers of {widths}"
        assert sorted(trial.intermediate_values) == list(range(1, 7))

    # As its docstring says: the words of the best trial are the script's own.
    words = folder.best("study.yaml", "--format", "args").out.split()
    assert set(words) == {f"--{name}={value}" for name, value in study.best_params.items()}
    again = folder.python("train.py", *words)
    assert again.code == 0, again.text
    assert json.loads(again.out.splitlines()[-1])["accuracy"] == pytest.approx(study.best_value)
