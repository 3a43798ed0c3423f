"""The examples whose trials have several devices, on CPU slots, each started as its README says."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from tests.e2e.study_folder import REPOSITORY, Ended, StudyFolder
from tuner.errors import EXIT_BUDGET_REACHED, EXIT_STUDY_FAILED

pytestmark = pytest.mark.programs

EXAMPLES = REPOSITORY / "examples"
#: One wide trial at a time: the machine of the tests has two cores.
TWO_SLOTS = ("--set", "devices=cpu:2")
#: Of a study whose first step is worth less than 0.5: hopeless.
PRUNE_WEAK = ("--set", "pruner={name: threshold, lower: 0.5}")
NEVER_PRUNE = ("--set", "pruner=none")

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


def _enqueue(folder: StudyFolder, study: str, database: str, *trials: Mapping[str, object]) -> None:
    storage = f"sqlite:///{folder.path / database}"
    begun = optuna.create_study(study_name=study, storage=storage, direction="maximize")
    for params in trials:
        begun.enqueue_trial(dict(params))


def _tune(folder: StudyFolder, *words: str, file: str = "study.yaml") -> Ended:
    ended = folder.tune(*words, *TWO_SLOTS, file=file)
    assert ended.code == 0, ended.text
    assert "Traceback" not in ended.text
    return ended


def _trials(folder: StudyFolder, study: str, database: str) -> list[FrozenTrial]:
    storage = f"sqlite:///{folder.path / database}"
    return optuna.load_study(study_name=study, storage=storage).trials


def _states(trials: list[FrozenTrial]) -> list[str]:
    return [trial.state.name for trial in trials]


def _files(folder: StudyFolder, study: str, number: int) -> Path:
    return folder.path / "tuner-files" / study / f"trial-{number}"


def _logs(folder: StudyFolder, study: str, number: int) -> dict[str, str]:
    logs = _files(folder, study, number).glob("attempt-1*.log")
    return {path.name: path.read_text() for path in logs}


def _checkpoints(folder: StudyFolder, study: str, number: int) -> set[str]:
    return {path.name for path in (_files(folder, study, number) / "checkpoints").iterdir()}


def _n_metrics(folder: StudyFolder, database: str) -> dict[str, int]:
    query = "select name, count(*) from tuner_metrics group by name"
    return dict(folder.rows(query, database=database))


#: Each takes both of two ranks.
TWO_RANKS = {"attempt-1.log", "attempt-1.rank-1.log"}
ONE_PROCESS = {"attempt-1.log"}


def test_ddp_prunes_on_all_ranks_and_speaks_once(example: Example) -> None:
    folder = example("ddp")
    good, weak = {"lr": 1e-2, "width": 64}, {"lr": 1e-4, "width": 16}
    _enqueue(folder, "digits-ddp", "ddp.db", good, weak)
    _tune(folder, "--trials", "2", *PRUNE_WEAK)

    trials = _trials(folder, "digits-ddp", "ddp.db")
    assert _states(trials) == ["COMPLETE", "PRUNED"]
    assert sorted(trials[0].intermediate_values) == [1, 2, 3, 4, 5, 6]
    assert trials[0].value == trials[0].intermediate_values[6] > 0.9
    assert list(trials[1].intermediate_values) == [1]
    for trial in trials:
        # Nothing went wrong on any rank, also not as they left.
        assert _logs(folder, "digits-ddp", trial.number) == dict.fromkeys(TWO_RANKS, "")
    assert _checkpoints(folder, "digits-ddp", 0) == {"step-5.pt", "step-6.pt"}
    assert _checkpoints(folder, "digits-ddp", 1) == {"step-1.pt"}
    assert _n_metrics(folder, "ddp.db") == {"loss": 7}

    # As its docstring says: the best configuration again, by torchrun alone.
    folder.env["TUNER_STORAGE"] = "sqlite:///ddp.db"
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py")
    alone = folder.python(*launch)
    assert alone.code == 0, alone.text
    lines = [line.partition(",")[0] for line in alone.out.splitlines()]
    steps = trials[0].intermediate_values.items()
    assert lines == [f"step {step}: accuracy {value:.6g}" for step, value in sorted(steps)]


def test_fsdp_saves_the_whole_model(example: Example) -> None:
    folder = example("fsdp")
    _tune(folder, "--trials", "1", *NEVER_PRUNE, "--set", "search_space.epochs=1")
    (trial,) = _trials(folder, "digits-fsdp", "fsdp.db")
    assert _states([trial]) == ["COMPLETE"]
    assert _logs(folder, "digits-fsdp", 0) == dict.fromkeys(TWO_RANKS, "")

    torch = pytest.importorskip("torch")
    file = _files(folder, "digits-fsdp", 0) / "checkpoints" / "step-1.pt"
    state = torch.load(file, weights_only=True)
    assert state["model"]["position"].shape == (8, 32)
    assert state["model"]["layers.0.linear1.weight"].shape == (64, 32)
    assert state["optimizer"]["state"]["position"]["exp_avg"].shape == (8, 32)


@pytest.mark.parametrize(
    ("name", "study", "database"),
    [
        # By day, the other one: a process with all devices, which differ in the model alone.
        pytest.param(
            *("data_parallel", "digits-data-parallel", "data_parallel.db"),
            marks=pytest.mark.nightly,
        ),
        ("split_model", "digits-split", "split.db"),
    ],
)
def test_one_process_has_all_devices(
    example: Example, name: str, study: str, database: str
) -> None:
    folder = example(name)
    good, weak = {"lr": 1e-2}, {"lr": 1e-4}
    width = {"n_channels": 8} if name == "data_parallel" else {"width": 64}
    _enqueue(folder, study, database, good | width, weak | width)
    _tune(folder, "--trials", "2", *PRUNE_WEAK, "--set", "search_space.epochs=2")
    trials = _trials(folder, study, database)
    assert _states(trials) == ["COMPLETE", "PRUNED"]
    assert sorted(trials[0].intermediate_values) == [1, 2]
    assert trials[0].value is not None
    assert trials[0].value > 0.7
    assert _logs(folder, study, 0) == dict.fromkeys(ONE_PROCESS, "")


@pytest.mark.parametrize(
    ("file", "study", "database", "logs"),
    [
        ("study.yaml", "digits-torchrun", "torchrun.db", ONE_PROCESS),
        # By day, test_wide starts a script once per rank.
        pytest.param(
            *("ddp.yaml", "digits-ranks", "ranks.db", TWO_RANKS), marks=pytest.mark.nightly
        ),
    ],
)
def test_script_for_torchrun_with_and_without_it(
    example: Example, file: str, study: str, database: str, logs: set[str]
) -> None:
    folder = example("torchrun")
    _enqueue(folder, study, database, {"lr": 1e-2, "width": 64})
    _tune(folder, "--trials", "1", *NEVER_PRUNE, file=file)
    (trial,) = _trials(folder, study, database)
    assert trial.value is not None
    assert trial.value > 0.9
    printed = _logs(folder, study, 0)
    assert set(printed) == logs
    found = [json.loads(line) for line in printed["attempt-1.log"].splitlines() if line[0] == "{"]
    assert {each["step"]: each["accuracy"] for each in found} == pytest.approx(
        trial.intermediate_values
    )
    assert printed.get("attempt-1.rank-1.log", "") == ""
    assert _n_metrics(folder, database) == {"loss": 5}


def test_width_is_a_parameter(example: Example) -> None:
    folder = example("mixed_widths")
    common = {"lr": 0.1, "momentum": 0.9}
    widths = (1, 2, 1)
    enqueued = [{"world_size": width, **common} for width in widths]
    _enqueue(folder, "digits-widths", "widths.db", *enqueued)
    _tune(folder, "--trials", "3", *NEVER_PRUNE, "--set", "search_space.epochs=2")
    trials = _trials(folder, "digits-widths", "widths.db")
    assert _states(trials) == ["COMPLETE"] * 3
    for trial, width in zip(trials, widths, strict=True):
        logs = _logs(folder, "digits-widths", trial.number)
        assert logs == dict.fromkeys(TWO_RANKS if width == 2 else ONE_PROCESS, "")


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow")
def test_keras_script_has_as_many_replicas_as_devices(example: Example) -> None:
    folder = example("keras")
    _enqueue(folder, "digits-keras", "keras.db", {"lr": 1e-2, "width": 64, "dropout": 0.0})
    _tune(folder, "--trials", "1", *NEVER_PRUNE)
    (trial,) = _trials(folder, "digits-keras", "keras.db")
    assert sorted(trial.intermediate_values) == [1, 2, 3, 4, 5]
    assert trial.value is not None
    assert trial.value > 0.8
    assert "2 replicas" in _logs(folder, "digits-keras", 0)["attempt-1.log"]


# -- scripts that hold their trial ---------------------------------------------------------------

SCRIPT = """
import optuna, tuner

trial = tuner.current()
trial.set_user_attr("note", "of one rank")
lr = trial.suggest_float("lr", 0, 1)
for step in range(1, 4):
    print(f"rank {trial.rank} of {trial.world_size}: lr {lr:.6f} step {step}", flush=True)
    trial.report(lr, step, shifted=lr + step)
    if trial.should_prune():
        raise optuna.TrialPruned
"""


@pytest.mark.parametrize("lower", [0.0, 2.0], ids=["completed", "pruned"])
def test_script_is_the_same_trial_on_every_rank(study_folder: StudyFolder, lower: float) -> None:
    study_folder.write("script.py", SCRIPT)
    study_folder.study(
        trial={"command": ["python", "script.py"], "resources": {"cpus": 2}, "parallel": "ddp"},
        search_space=None,
        pruner={"name": "threshold", "lower": lower},
    )
    ended = study_folder.tune("--trials", "1", *TWO_SLOTS)
    # A study without a result has failed.
    assert ended.code == (EXIT_STUDY_FAILED if lower else EXIT_BUDGET_REACHED), ended.text
    (trial,) = _trials(study_folder, "small", "small.db")
    n_steps = 1 if lower else 3
    assert trial.state is (TrialState.PRUNED if lower else TrialState.COMPLETE)
    assert len(trial.intermediate_values) == n_steps
    assert trial.user_attrs["note"] == "of one rank"
    assert _n_metrics(study_folder, "small.db") == {"shifted": n_steps}
    logs = _logs(study_folder, "small", 0)
    for rank, name in enumerate(sorted(TWO_RANKS)):
        lines = [f"rank {rank} of 2: lr {trial.params['lr']:.6f} step {n + 1}" for n in range(3)]
        printed = [line for line in logs[name].splitlines() if line.startswith("rank")]
        assert printed == lines[:n_steps]
