"""What a program passes to Optuna, in the words of a study file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest

from tuner.errors import ConfigError
from tuner.frameworks.optuna_programs.execution import NotReached, OptunaProgram, load
from tuner.frameworks.optuna_programs.translation import Translation, problem_of, translate
from tuner.tracking.registry import TRACKERS

Read = Callable[[str], Translation]


@pytest.fixture(autouse=True)
def own_process() -> Iterator[None]:
    """A program takes over the process that runs it."""
    before = sys.modules["__main__"], list(sys.argv), list(sys.path)
    yield
    sys.modules["__main__"], sys.argv[:], sys.path[:] = before


@pytest.fixture
def program(tmp_path: Path) -> OptunaProgram:
    return OptunaProgram(path=tmp_path / "train.py", arguments=("--lr", "3"), folder=tmp_path)


@pytest.fixture
def read(program: OptunaProgram) -> Read:
    """Translates a program of which the lines before `optimize` and its arguments differ."""

    def read(text: str) -> Translation:
        program.path.write_text(
            "import optuna\nfrom optuna.samplers import *\nfrom optuna.pruners import *\n"
            f"def objective(trial): return 1.0\n{text}\n"
        )
        found = translate(load(program))
        assert Translation.from_text(found.to_text()) == found
        return found

    return read


def test_nothing_given_leaves_sampler_and_pruner_to_the_tuner(read: Read) -> None:
    found = read("optuna.create_study().optimize(objective)")
    assert found.study == "train"
    assert found.values == {"objectives": {"value": "minimize"}}
    assert found.not_used == []


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        ("TPESampler(seed=1)", {"name": "tpe", "seed": 1}),
        ("TPESampler(multivariate=True)", {"name": "tpe", "multivariate": True}),
        ("RandomSampler(7)", {"name": "random", "seed": 7}),
        ("CmaEsSampler(sigma0=0.5)", {"name": "cma_es", "sigma0": 0.5}),
        (
            "GridSampler({'x': [1, 2]})",
            {"name": "grid", "search_space": {"x": [1, 2]}},
        ),
        (
            "NSGAIISampler(crossover=optuna.samplers.nsgaii.SBXCrossover())",
            {"name": "nsgaii", "crossover": "sbx"},
        ),
        (
            "PartialFixedSampler({'x': 1}, RandomSampler(seed=2))",
            {
                "name": "partial_fixed",
                "fixed_params": {"x": 1},
                "base_sampler": {"name": "random", "seed": 2},
            },
        ),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_samplers_are_named_with_their_arguments(
    read: Read, sampler: str, words: dict[str, object]
) -> None:
    found = read(f"optuna.create_study(sampler={sampler}).optimize(objective)")
    assert found.values["sampler"] == words
    assert found.not_used == []


@pytest.mark.parametrize(
    ("pruner", "words"),
    [
        ("NopPruner()", {"name": "none"}),
        ("MedianPruner(n_warmup_steps=5)", {"name": "median", "n_warmup_steps": 5}),
        ("HyperbandPruner(max_resource=9)", {"name": "optuna_hyperband", "max_resource": 9}),
        (
            "PatientPruner(SuccessiveHalvingPruner(), patience=2)",
            {"name": "patient", "wrapped_pruner": {"name": "successive_halving"}, "patience": 2},
        ),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_pruners_are_named_with_their_arguments(
    read: Read, pruner: str, words: dict[str, object]
) -> None:
    found = read(f"optuna.create_study(pruner={pruner}).optimize(objective)")
    assert found.values["pruner"] == words


def test_budget_directions_names_and_attributes_are_read(read: Read) -> None:
    found = read(
        "study = optuna.create_study(study_name='two', directions=['minimize', 'maximize'])\n"
        "study.set_metric_names(['loss', 'gain'])\n"
        "study.set_user_attr('owner', 'ada')\n"
        "study.enqueue_trial({'x': 1})\n"
        "study.optimize(objective, 30, timeout=90)"
    )
    assert found.study == "two"
    assert found.values["objectives"] == {"loss": "minimize", "gain": "maximize"}
    assert found.values["budget"] == {"trials": 30, "time": "90s"}
    assert found.enqueued == [{"x": 1}]
    assert found.user_attrs == {"owner": "ada"}


def test_a_storage_is_named_by_its_url(read: Read) -> None:
    found = read(
        "from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback\n"
        "again = RetryHeartbeatStaleTrialCallback(max_retry=2)\n"
        "storage = RDBStorage('sqlite:///:memory:', heartbeat_interval=60,\n"
        "                     heartbeat_stale_trial_callback=again)\n"
        "study = optuna.create_study(storage=storage, load_if_exists=True)\n"
        "study.optimize(objective)"
    )
    assert found.storage == "sqlite:///:memory:"
    assert found.values["trial"] == {"retries": 2}
    assert found.not_used == []
    assert "sqlite" not in repr(found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("create_study().optimize(objective, n_jobs=4)", "n_jobs=4: one trial runs on each"),
        (
            "create_study().optimize(objective, callbacks=[print])",
            "callback print: it would run in Optuna's own loop",
        ),
        ("create_study().optimize(objective, catch=(ValueError,))", "catch: the study always"),
        (
            "create_study(storage='sqlite:///x.db').optimize(objective)",
            "load_if_exists=False: the same command continues",
        ),
        (
            "create_study(storage=optuna.storages.InMemoryStorage()).optimize(objective)",
            "storage InMemoryStorage: the tuner stores studies in SQLite",
        ),
        (
            "create_study(sampler=TPESampler(weights=lambda n: n)).optimize(objective)",
            "sampler argument weights: Python code",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_is_not_used_is_named(read: Read, text: str, words: str) -> None:
    found = read(f"optuna.{text}")
    assert any(each.startswith(words) for each in found.not_used), found.not_used


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("MLflowCallback", "track.mlflow=URI"),
        ("TensorBoardCallback", "track.tensorboard=FOLDER"),
        ("WeightsAndBiasesCallback", "track.wandb=PROJECT"),
    ],
)
def test_a_callback_that_writes_runs_is_sent_to_the_tracker(
    read: Read, name: str, key: str
) -> None:
    # By name: importing the real ones takes their trackers' packages.
    found = read(
        f"class {name}:\n    def __call__(self, study, trial): pass\n"
        f"optuna.create_study().optimize(objective, callbacks=[{name}()])"
    )
    (text,) = found.not_used
    assert text == f"callback {name}: the tuner writes these runs itself. Add --set {key}"
    assert key.partition("=")[0].removeprefix("track.") in TRACKERS.names


def test_a_class_of_the_program_is_named_as_not_used(read: Read) -> None:
    found = read(
        "class Mine(RandomSampler): pass\noptuna.create_study(sampler=Mine()).optimize(objective)"
    )
    assert "sampler" not in found.values
    assert found.not_used[0].startswith("sampler Mine: a class of your own")


def test_a_number_of_trials_over_all_processes_is_the_budget(read: Read) -> None:
    found = read(
        "from optuna.study import MaxTrialsCallback\n"
        "optuna.create_study().optimize(objective, n_trials=50, callbacks=[MaxTrialsCallback(10)])"
    )
    assert found.values["budget"] == {"trials": 10}
    assert found.not_used == []


def test_nothing_after_optimize_is_run_and_nothing_is_left_replaced(
    program: OptunaProgram, tmp_path: Path
) -> None:
    before = optuna.create_study, optuna.Study.optimize, optuna.samplers.TPESampler.__init__
    program.path.write_text(
        "import sys, optuna\n"
        "try:\n"
        "    optuna.create_study().optimize(lambda trial: float(sys.argv[2]))\n"
        "except Exception:\n"
        "    open('seen', 'w')\n"
        "open('seen', 'w')\n"
    )
    loaded = load(program)
    loaded.set_up()
    assert loaded.call.objective(optuna.create_study().ask()) == 3.0
    assert not (tmp_path / "seen").exists()
    after = optuna.create_study, optuna.Study.optimize, optuna.samplers.TPESampler.__init__
    assert before == after


def test_a_program_without_optimize_is_told_from_one_with_it(program: OptunaProgram) -> None:
    program.path.write_text("import optuna\noptuna.create_study()\n")
    with pytest.raises(NotReached):
        load(program)


def test_objectives_of_optuna_itself_are_refused(program: OptunaProgram) -> None:
    program.path.write_text(
        "import optuna\noptuna.create_study().optimize(optuna.trial.FixedTrial)\n"
    )
    assert "Write an objective(trial)" in problem_of(load(program))


def test_errors_of_the_program_are_its_own(program: OptunaProgram) -> None:
    program.path.write_text("raise OSError('no data')\n")
    with pytest.raises(OSError, match="no data"):
        load(program)
    assert not issubclass(OSError, ConfigError)
