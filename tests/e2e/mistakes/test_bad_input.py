"""Each mistake that the user can make gets one message, its exit code, and costs nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.mistakes.refusals import DEVICES_LINE, ECHO, check_refused
from tests.e2e.study_folder import Ended, StudyFolder
from tests.nvml_stub import NvmlStub, StubGpu, StubProcess
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED

PASSWORD = "s3cret-word"
UUIDS = [f"GPU-{index:08x}-0000-4000-8000-000000000000" for index in range(2)]
UNTOUCHED = {"forecast.py", "study.yaml"}


def test_missing_file(study_folder: StudyFolder) -> None:
    message = "there is no such file. Give the path of a study file, or write one: tuner init"
    check_refused(study_folder.tune(file="stduy.yaml"), f"stduy.yaml: {message}")
    assert study_folder.files() == {"forecast.py"}


def test_not_yaml(study_folder: StudyFolder) -> None:
    study_folder.write("study.yaml", "study: [1\n")
    check_refused(
        study_folder.tune(),
        "study.yaml: line 2, column 1: not valid YAML: while parsing a flow sequence, "
        "expected ',' or ']', but got the end of the file.",
    )


def test_unknown_keys_and_wrong_types(study_folder: StudyFolder) -> None:
    study_folder.study(
        study=3,
        trial={"function": "forecast:train", "retries": "many", "resources": {"gpu": 1}},
        budget={"trials": "10", "time": "soon"},
        devices=3,
        samplr="tpe",
    )
    check_refused(
        study_folder.tune(),
        'study.yaml: study is 3, but must be text. Put it in quotes: "3".\n'
        "study.yaml: unknown key 'trial.resources.gpu'. Did you mean 'trial.resources.gpus'?\n"
        "study.yaml: trial.retries is 'many', but must be a whole number (for example 64).\n"
        "study.yaml: devices is 3, which is not a list. To use that one device, write [3].\n"
        "study.yaml: budget.trials is '10', but must be a whole number (for example 64).\n"
        "study.yaml: budget.time is 'soon', but must be a duration above 0, such as 90s, 30m, "
        "1h30m or 2d, or a number of seconds.\n"
        "study.yaml: unknown key 'samplr'. Did you mean 'sampler'?",
    )
    assert study_folder.files() == UNTOUCHED


def test_wrong_space(study_folder: StudyFolder) -> None:
    number = {"type": "float", "low": 0, "high": 1}
    study_folder.study(
        search_space={
            "swapped": {"type": "int", "low": 5, "high": 2},
            "equal": {"type": "float", "low": 1, "high": 1},
            "zero": {**number, "log": True},
            "below": {"type": "int", "low": -3, "high": 1, "log": True},
            "nothing": {"type": "categorical", "choices": []},
            "unknown": {**number, "when": {"optimiser": "sgd"}},
            "later": {**number, "when": {"optimizer": "sgd"}},
            "optimizer": {"type": "categorical", "choices": ["sgd", "adam"]},
            "never": {**number, "when": {"optimizer": "sdg"}},
        }
    )
    place = "study.yaml: search_space"
    check_refused(
        study_folder.tune(),
        f"{place}.swapped.low is 5, but must be below high, which is 2. Swap the two.\n"
        f"{place}.equal has low equal to high (1.0). Use a constant instead: equal: 1.0\n"
        f"{place}.zero.low is 0.0, but must be above 0 with log: true. Use for example 1.0e-5.\n"
        f"{place}.below.low is -3, but must be above 0 with log: true. Use for example 1.\n"
        f"{place}.nothing.choices is empty, but must have at least one value.\n"
        f"{place}.unknown.when.optimiser names optimiser, which is no parameter of this space. "
        "Earlier ones: none.\n"
        f"{place}.later.when.optimizer names optimizer, which comes later. "
        "Move optimizer above later.\n"
        f"{place}.never.when.optimizer is 'sdg', but optimizer can never be that: "
        "its choices are 'sgd', 'adam'.",
    )


#: Each message of a name or an argument: tests/unit/search.
@pytest.mark.parametrize(
    ("override", "message"),
    [
        pytest.param(
            "sampler.name=tpee",
            "sampler.name is 'tpee', but must be one of brute_force, cma_es, cmaes, curve_gp, gp, "
            "grid, nsgaii, nsgaiii, partial_fixed, qmc, random, tpe. Did you mean 'tpe'?",
            id="sampler",
        ),
        pytest.param(
            "pruner={name: asha, reduction_factor: 1}",
            "pruner is refused by asha: The value of `reduction_factor` is 1, "
            "but must be `reduction_factor >= 2`",
            id="pruner-argument-value",
        ),
    ],
)
def test_wrong_sampler_or_pruner(study_folder: StudyFolder, override: str, message: str) -> None:
    study_folder.study()
    check_refused(study_folder.tune("--set", override), f"study.yaml: {message}")
    assert study_folder.files() == UNTOUCHED


# -- devices ---------------------------------------------------------------------------------
FOUR_GPUS = {"function": "forecast:train", "resources": {"gpus": 4}}


def test_gpus_wanted_on_a_machine_without(gpu_folder: StudyFolder) -> None:
    gpu_folder.study(trial=FOUR_GPUS, devices="auto")
    check_refused(
        gpu_folder.tune(),
        "study.yaml: trial.resources.gpus is 4, but this machine has no GPU. "
        "Use resources: {cpus: 1}, or remove trial.resources.",
    )


def test_more_gpus_than_there_are(gpu_folder: StudyFolder, nvml_stub: NvmlStub) -> None:
    nvml_stub.write([StubGpu(uuid=uuid) for uuid in UUIDS])
    gpu_folder.study(trial=FOUR_GPUS, devices="auto")
    check_refused(
        gpu_folder.tune(),
        "study.yaml: trial.resources.gpus is 4, but this machine has 2 GPUs (0, 1). Use 1 or 2.",
    )
    gpu_folder.study(devices=[0, 7])
    check_refused(
        gpu_folder.tune(),
        "study.yaml: devices: 7 is not here. "
        f"This machine has GPU 0 ({UUIDS[0]}), GPU 1 ({UUIDS[1]}).",
    )
    assert gpu_folder.files() == UNTOUCHED


def test_no_free_device(gpu_folder: StudyFolder, nvml_stub: NvmlStub) -> None:
    holder = StubProcess(pid=os.getpid(), mib=4000)
    nvml_stub.write([StubGpu(uuid=uuid, used_mib=4096, processes=(holder,)) for uuid in UUIDS])
    gpu_folder.study(devices="auto")
    ended = gpu_folder.tune()
    name = Path("/proc/self/comm").read_text().strip()
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    held = f"{name} (pid {os.getpid()}, user {user}) holds 3.9 GiB of it."
    check_refused(
        ended,
        f"study.yaml: No free device: GPU 0 is left out: {held} GPU 1 is left out: {held} "
        "Wait until one is free, share them anyway by naming them (`devices: [0, 1]`) or with "
        "`devices: all`, or use the CPU with `devices: cpu:4`.",
    )
    assert gpu_folder.files() == UNTOUCHED


# -- storage ---------------------------------------------------------------------------------
URL_FORMS = (
    "a SQLAlchemy URL: sqlite:///study.db, postgresql://user:${DB_PASSWORD}@host/name "
    "or mysql://user:${DB_PASSWORD}@host/name."
)


#: A program that starts sooner than Python with torch.


def test_malformed_storage(study_folder: StudyFolder) -> None:
    study_folder.study(storage="postgresql+psycopg//me:${DB_PASSWORD}@host/db")
    check_refused(
        study_folder.tune(env={"DB_PASSWORD": PASSWORD}),
        f"study.yaml: storage is 'postgresql+psycopg//me:***@host/db', but must be {URL_FORMS}",
    )
    check_refused(
        study_folder.tune(),
        "study.yaml: storage needs ${DB_PASSWORD}, but the environment variable DB_PASSWORD is "
        "not set. Set it (export DB_PASSWORD=...), or read a file: "
        "${file:/path/of/the/password}.",
    )
    assert study_folder.files() == UNTOUCHED


@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        (
            "postgresql+psycopg",
            'connection failed: connection to server at "127.0.0.1", port 1 failed: '
            "Connection refused",
        ),
        (
            "mysql+pymysql",
            "Can't connect to MySQL server on '127.0.0.1' ([Errno 111] Connection refused)",
        ),
    ],
)
def test_unreachable_storage(study_folder: StudyFolder, driver: str, reason: str) -> None:
    study_folder.study(trial=ECHO, storage=f"{driver}://me:${{DB_PASSWORD}}@127.0.0.1:1/db")
    ended = study_folder.tune(env={"DB_PASSWORD": PASSWORD})
    check_refused(
        ended,
        f"The database server did not answer: {reason}. Start it, or correct its host and port "
        f"in storage (storage {driver}://me:***@127.0.0.1:1/db)",
        out=DEVICES_LINE,
    )
    assert PASSWORD not in ended.text


def test_storage_that_is_no_database(study_folder: StudyFolder) -> None:
    study_folder.study(trial=ECHO)
    study_folder.write("small.db", "a text, longer than the head of a database file" * 10)
    check_refused(
        study_folder.tune(),
        "The file is not an SQLite database. Name another storage "
        f"(storage sqlite:///{study_folder.path / 'small.db'})",
        out=DEVICES_LINE,
    )


def test_database_of_a_newer_schema(study_folder: StudyFolder) -> None:
    study_folder.study(trial=ECHO)
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    url = f"sqlite:///{study_folder.path / 'small.db'}"
    (ours,) = study_folder.rows("select version_num from tuner_alembic_version")
    (optunas,) = study_folder.rows("select version_num from alembic_version")
    more = ("--trials", "5")

    study_folder.execute("update tuner_alembic_version set version_num = '9999'")
    check_refused(
        study_folder.tune(*more),
        f"The database {url} was written by a newer tuner (schema 9999; this one knows "
        f"{ours[0]}). Upgrade with `pip install -U gpu-tuner`, or name another storage.",
        out=DEVICES_LINE,
    )
    study_folder.execute("update tuner_alembic_version set version_num = ?", *ours)

    study_folder.execute("update alembic_version set version_num = 'v99.0.0.a'")
    ended = study_folder.tune(*more)
    assert (ended.code, ended.out) == (EXIT_BAD_INPUT, DEVICES_LINE)
    assert ended.err.startswith(f"Optuna refuses the database {url}: The runtime optuna version ")
    assert ended.err.endswith(
        "Please try updating optuna to the latest version by `$ pip install -U optuna`.\n"
    )
    study_folder.execute("update alembic_version set version_num = ?", *optunas)

    assert study_folder.states() == ["COMPLETE"] * 4
    assert study_folder.tune(*more).code == EXIT_BUDGET_REACHED
    assert study_folder.states() == ["COMPLETE"] * 5


def test_study_that_exists_with_another_space(study_folder: StudyFolder) -> None:
    study_folder.study(trial=ECHO)
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    study_folder.study(
        trial=ECHO,
        storage="sqlite:///small.db",
        objectives={"value": "maximize"},
        search_space={
            "x": {"type": "float", "low": 0, "high": 2},
            "y": {"type": "int", "low": 0, "high": 2},
        },
    )
    check_refused(
        study_folder.tune(),
        "Study 'small' exists in this storage, and it is another one:\n"
        "  - objectives were {value: minimize}, are now {value: maximize}\n"
        "  - x: high was 1.0, is now 2.0\n"
        "  - y is new\n"
        "Undo the change to continue that study, or start a new one with --study NEW_NAME.",
        out=DEVICES_LINE,
    )
    assert study_folder.states() == ["COMPLETE"] * 4
    ended = study_folder.tune("--study", "other")
    assert ended.code == EXIT_BUDGET_REACHED
    assert "again: python -m tuner.best study.yaml --study other\n" in ended.out
    assert study_folder.best("study.yaml", "--study", "other").code == 0
    assert len(study_folder.states()) == 8


# -- the program -----------------------------------------------------------------------------
def test_program_of_a_command(study_folder: StudyFolder) -> None:
    study_folder.study(trial={"command": ["python", "train.py", "--lr={lr}", "--x={xx}"]})
    check_refused(
        study_folder.tune(),
        "study.yaml: trial.command[2] is '--lr={lr}', but {lr} is not in search_space. "
        "Parameters: x. The tuner itself fills {trial_number}, {attempt_number}, {seed}, "
        "{checkpoint_dir}, {gpus}. A brace that is no place is doubled: {{ }}.\n"
        "study.yaml: trial.command[3] is '--x={xx}', but {xx} is not in search_space. "
        "Did you mean '{x}'?",
    )
    study_folder.study(trial={"command": ["pyton", "train.py"]})
    check_refused(
        study_folder.tune(),
        "study.yaml: trial.command[0] is 'pyton', but there is no such program on PATH. "
        "Did you mean 'python'?",
    )
    study_folder.study(trial={"command": ["./train.sh"]})
    check_refused(
        study_folder.tune(),
        "study.yaml: trial.command[0] is './train.sh', but there is no program "
        f"{study_folder.path / 'train.sh'}. Correct the path.",
    )
    study_folder.write("train.sh", "#!/bin/sh\n")
    check_refused(
        study_folder.tune(),
        "study.yaml: trial.command[0] is './train.sh', which is not executable. "
        f"Run: chmod +x {study_folder.path / 'train.sh'}",
    )
    assert study_folder.files() == UNTOUCHED | {"train.sh"}


def check_import_refused(ended: Ended, first_line: str, last_line: str) -> None:
    assert (ended.code, ended.out) == (EXIT_BAD_INPUT, DEVICES_LINE)
    lines = ended.err.splitlines()
    assert (lines[0], lines[-1].strip()) == (f"study.yaml: {first_line}", last_line)
    assert "Traceback" not in ended.err


def test_function_that_cannot_be_imported(study_folder: StudyFolder) -> None:
    study_folder.study()
    study_folder.write("forecast.py", "import math\n\nLEVEL = math.sqrt(-1)\n")
    ended = study_folder.tune()
    check_import_refused(
        ended,
        "trial.function is 'forecast:train', but importing 'forecast' fails:",
        "ValueError: math domain error",
    )
    assert f'File "{study_folder.path / "forecast.py"}", line 3, in <module>' in ended.err
    # Nothing was started, so another space is no contradiction.
    study_folder.write("forecast.py", "def train(trial):\n    return trial.params['y']\n")
    study_folder.study(search_space={"y": {"type": "float", "low": 0, "high": 1}})
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    assert study_folder.states() == ["COMPLETE"] * 4


@pytest.mark.parametrize(
    ("function", "message"),
    [
        pytest.param(
            "forecast:trian",
            "trial.function is 'forecast:trian', but forecast has no function 'trian'. "
            "It has: train, train_two. Did you mean 'train'?",
            id="missing",
        ),
        pytest.param(
            "forecast:train_two",
            "trial.function is 'forecast:train_two', whose signature is train_two(lr, epochs). "
            "It must be callable with one argument, the trial. Write def train_two(trial): "
            "lr = trial.params['lr']; epochs = trial.params['epochs']",
            id="signature",
        ),
    ],
)
def test_wrong_function(study_folder: StudyFolder, function: str, message: str) -> None:
    study_folder.write(
        "forecast.py",
        "def train(trial): return 1\ndef train_two(lr, epochs): return 1\n",
    )
    study_folder.study(trial={"function": function})
    check_refused(study_folder.tune(), f"study.yaml: {message}", out=DEVICES_LINE)


def test_module_that_does_not_exist(study_folder: StudyFolder) -> None:
    study_folder.study(trial={"function": "forcast:train"})
    check_refused(
        study_folder.tune(),
        "study.yaml: trial.function is 'forcast:train', but there is no module 'forcast' in "
        f"{study_folder.path}, and none is installed. Correct the name, or put the file there.",
        out=DEVICES_LINE,
    )


def test_module_named_tuner(study_folder: StudyFolder) -> None:
    study_folder.write("tuner.py", "")
    study_folder.study()
    check_refused(
        study_folder.tuner("run", "study.yaml"),
        f"study.yaml: The folder {study_folder.path} has a module 'tuner' of its own, which hides "
        "the installed package of that name. Rename tuner.py.",
    )
