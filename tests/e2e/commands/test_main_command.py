"""What the commands print and leave behind when all is well."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml

from tests.e2e.study_folder import TIMEOUT_S, StudyFolder, wait_until
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED

# The values are known in advance: the grid holds them.
GRID = {
    "search_space": {
        "x": {"type": "categorical", "choices": [1.0, 0.5, 0.25, 2.0]},
        "name": "it's a forecast",
        "layers": {"value": [64, 32]},
    },
    "sampler": {"name": "grid", "seed": 0},
    "budget": None,
    "trial": {"function": "forecast:train"},
}
REPORTS = """
def train(trial):
    for step in range(3):
        trial.report(trial.params["x"] + step, step, loss=step / 10)
    return trial.params["x"]
"""


# -- before the start ------------------------------------------------------------------------


def test_dry_run_prints_json_and_leaves_nothing(study_folder: StudyFolder) -> None:
    study_folder.study(storage="postgresql+psycopg://me:s3cret@127.0.0.1:1/db")
    ended = study_folder.tune("--dry-run", "--json", "--set", "devices=cpu:1")
    assert (ended.code, ended.err) == (0, "")
    assert "s3cret" not in ended.out
    shown = json.loads(ended.out)
    assert shown["study"] == "small"
    assert shown["search_space"] == {"x": {"type": "float", "low": 0.0, "high": 1.0}}
    assert [device["id"] for device in shown["devices"]] == ["cpu:0"]
    request = shown["first_launch_requests"][0]
    assert request["program"]["module"] == "forecast"
    assert request["folder"] == str(study_folder.path)
    assert set(request["assign"]["params"]) == {"x"}
    assert "TUNER_TOKEN" not in request["environment"]
    assert study_folder.files() == {"forecast.py", "study.yaml"}


def test_dry_run_prints_a_line_that_runs_the_first_trial(study_folder: StudyFolder) -> None:
    study_folder.study(devices="cpu:2", pruner={"name": "asha", "min_resource": 2})
    shown = study_folder.tune("--dry-run")
    assert shown.code == 0, shown.text
    x = re.search(r"^first trial, on cpu:0: x ([\d.]+)$", shown.out, re.MULTILINE)
    assert x is not None, shown.out
    assert shown.out.startswith(f"study: small in sqlite:///{study_folder.path}/small.db\n")
    assert "\nobjectives: value (minimize)\ndevices: cpu:0, cpu:1\n" in shown.out
    assert "\nsampler: random: named in the study file\n" in shown.out
    assert "\npruner: asha (min_resource 2): named in the study file\n" in shown.out
    line = shown.out.partition("to run it alone:\n  ")[2].partition("\n")[0]
    ended = study_folder.run("sh", "-c", line)
    assert ended.code == 0, ended.text
    value = float(ended.out.splitlines()[-1])
    assert value == pytest.approx((float(x[1]) - 0.3) ** 2, abs=1e-3)
    assert "small.db" not in study_folder.files()


def test_dry_run_fills_the_users_command(study_folder: StudyFolder) -> None:
    study_folder.study(
        trial={
            "command": ["echo", "--x={x}", "--seed={seed}"],
            "env": {"RATE": "{x}", "TOKEN": "s3cret"},
        }
    )
    shown = study_folder.tune("--dry-run", "--", "--data", "a b")
    line = shown.out.partition("to run it alone:\n  ")[2].partition("\n")[0]
    assert re.search(r" && env RATE=[\d.]+ echo --x=[\d.]+ --seed=0 --data 'a b'$", line), line
    assert "s3cret" not in shown.out


def test_json_is_for_dry_runs(study_folder: StudyFolder) -> None:
    study_folder.study()
    refused = study_folder.tune("--json")
    assert refused.code == EXIT_BAD_INPUT
    assert "--json shows a dry run only. Write: --dry-run --json" in refused.err


def test_init_writes_a_file_that_validates(study_folder: StudyFolder) -> None:
    written = study_folder.tuner("init")
    assert (written.code, written.err) == (0, "")
    assert written.out == (
        "study.yaml is written. Edit it, then: tuner validate study.yaml; "
        "python -m tuner.run study.yaml\n"
    )
    again = study_folder.tuner("init")
    message = "study.yaml: exists already. Name another file, or overwrite it with --force.\n"
    assert (again.code, again.err) == (EXIT_BAD_INPUT, message)
    assert study_folder.tuner("init", "--force").code == 0

    valid = study_folder.tuner("validate", "--set", "devices=cpu:2")
    assert (valid.code, valid.err) == (0, "")
    assert valid.out == "study.yaml is fine: study 'my-study' would run on cpu:0, cpu:1.\n"
    assert not list(study_folder.path.glob("*.db"))


def test_devices_of_a_machine_without_gpus(gpu_folder: StudyFolder) -> None:
    ended = gpu_folder.tuner("devices")
    assert (ended.code, ended.err) == (0, "")
    header, first, *_ = ended.out.splitlines()
    columns = ["device", "name", "memory", "use", "nvlink", "numa", "held by", "auto", "id"]
    assert re.split(r"\s{2,}", header.strip()) == columns
    assert first.startswith("cpu:0 ")


@pytest.mark.parametrize(
    "words", [["-m", "tuner.run", "--help"], ["-m", "tuner.best", "--help"]], ids=["run", "best"]
)
def test_help(study_folder: StudyFolder, words: list[str]) -> None:
    ended = study_folder.python(*words)
    assert (ended.code, ended.err) == (0, "")
    assert f"Usage: python {words[0]} {words[1]}" in ended.out


# -- flags -----------------------------------------------------------------------------------


def test_flags_win_and_words_are_appended(study_folder: StudyFolder) -> None:
    script = 'for word in "$@"; do echo "word $word"; done; echo \'{{"value": {x}}}\''
    study_folder.study(trial={"command": ["sh", "-c", script, "train", "--x={x}"]})
    ended = study_folder.tune(
        *("--set", "devices=cpu:1", "--set", "search_space.x.high=0.5", "--trials", "2"),
        *("--study", "flags", "--set", "storage=sqlite:///small.db"),
        *("--", "--epochs=3", "two words"),
    )
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    assert ended.out.startswith("devices: cpu:0\n")
    assert study_folder.rows("select study_name from studies") == [("flags",)]
    values = study_folder.rows("select value from trial_values")
    assert len(values) == 2
    assert all(value <= 0.5 for (value,) in values)
    log = study_folder.tuner("logs", "1", "--study", "flags").out.splitlines()
    assert log[0].startswith("word --x=0.")
    assert log[1:3] == ["word --epochs=3", "word two words"]

    study_folder.study()
    refused = study_folder.tune("--", "--epochs=3")
    assert (refused.code, refused.err) == (
        EXIT_BAD_INPUT,
        "study.yaml: the arguments after -- (--epochs=3) are for the program of trial.command, "
        "and this study has none: its trials are calls of trial.function. Write such values "
        "into search_space as constants (data: /mnt/imagenet), which the function reads from "
        "its parameters, or into trial.env.\n",
    )


# -- the whole way, once, and every way to look at it ------------------------------------------


@pytest.fixture
def grid_study(study_folder: StudyFolder) -> StudyFolder:
    """Four trials with reports, and what the command printed in `printed.txt`."""
    study_folder.write("forecast.py", REPORTS)
    study_folder.study(**{**GRID, "devices": "cpu:1"})
    study_folder.is_cold = True  # As a user starts it.
    ended = study_folder.tune()
    study_folder.is_cold = False
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, ""), ended
    study_folder.write("printed.txt", ended.out)
    return study_folder


def test_finished_study(grid_study: StudyFolder) -> None:
    check_plain_lines((grid_study.path / "printed.txt").read_text())
    check_best_formats(grid_study)
    check_optuna_reads_all(grid_study)
    check_dashboard_shows_all(grid_study)


def check_plain_lines(printed: str) -> None:
    lines = printed.splitlines()
    assert "\x1b" not in printed
    assert lines[:2] == ["devices: cpu:0", "budget: open; the study runs until Ctrl-C"]
    assert re.fullmatch(
        r"trial 0: started on cpu:0: x \S+, name it's a forecast, layers \[64, 32\]", lines[2]
    )
    assert re.fullmatch(r"trial 0: completed, value \S+ \(best\)", lines[3])
    assert lines[-6:] == [
        "every configuration of the space was tried: 4 completed, 0 pruned, 0 failed",
        lines[-5],
        "  x: 0.25",
        "  name: it's a forecast",
        "  layers: [64, 32]",
        "again: python -m tuner.best study.yaml",
    ]
    assert re.fullmatch(r"best: value 0\.25 \(trial \d\)", lines[-5])


def check_best_formats(folder: StudyFolder) -> None:
    def best(*words: str) -> str:
        ended = folder.best("study.yaml", *words)
        assert (ended.code, ended.err) == (0, "")
        return ended.out

    params = {"name": "it's a forecast", "layers": [64, 32], "x": 0.25}
    (one,) = yaml.safe_load(best())
    assert (one["study"], one["params"], one["values"]) == ("small", params, {"value": 0.25})
    three = json.loads(best("--top", "3", "--format", "json"))
    assert [each["values"]["value"] for each in three] == [0.25, 0.5, 1.0]
    assert shlex.split(best("--format", "args")) == [
        "--x=0.25",
        "--name=it's a forecast",
        "--layers=[64, 32]",
    ]
    shown = ["sh", "-c", best("--format", "env") + '\necho "$TUNER_PARAM_X $TUNER_PARAM_NAME"']
    done = subprocess.run(shown, capture_output=True, text=True, check=True)
    assert done.stdout == "0.25 it's a forecast\n"


def check_optuna_reads_all(folder: StudyFolder) -> None:
    study = optuna.load_study(study_name="small", storage=f"sqlite:///{folder.path / 'small.db'}")
    assert sorted(trial.value for trial in study.trials if trial.value) == [0.25, 0.5, 1.0, 2.0]
    for trial in study.trials:
        x = trial.params["x"]
        assert trial.intermediate_values == {step: x + step for step in range(3)}
    study._storage._backend.engine.dispose()  # type: ignore[attr-defined]


def check_dashboard_shows_all(folder: StudyFolder) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [Path(sys.executable).with_name("optuna-dashboard"), "sqlite:///small.db"]
    words = ["--port", str(port), "--host", "127.0.0.1"]
    with open(folder.path / "dashboard.log", "wb") as log:
        server = subprocess.Popen(
            [*command, *words],
            cwd=folder.path,
            env=folder.environment({"PYTHONWARNINGS": "ignore"}),
            stdout=log,
            stderr=log,
        )
    try:
        url = f"http://127.0.0.1:{port}/api/studies"
        wait_until(lambda: fetch(url) is not None or server.poll() is not None, "it answers")
        (summary,) = fetch(url)["study_summaries"]
        assert summary["study_name"] == "small"
        found = fetch(f"{url}/{summary['study_id']}?after=0")
        trials = sorted(found["trials"], key=lambda trial: trial["values"][0])
        assert [(t["state"], t["values"]) for t in trials] == [
            ("Complete", [value]) for value in (0.25, 0.5, 1.0, 2.0)
        ]
        for trial in trials:
            curve = {each["step"]: each["value"] for each in trial["intermediate_values"]}
            assert curve == {step: trial["values"][0] + step for step in range(3)}
    finally:
        server.terminate()
        server.wait(TIMEOUT_S)


def fetch(url: str) -> Any:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)
    return None


def test_several_objectives(study_folder: StudyFolder) -> None:
    study_folder.write(
        "forecast.py",
        "def train(trial):\n"
        "    x = trial.params['x']\n"
        "    return {'latency_ms': x, 'accuracy': 1 - (x - 1) ** 2}\n",
    )
    study_folder.study(
        objectives={"accuracy": "maximize", "latency_ms": "minimize"},
        search_space={"x": {"type": "categorical", "choices": [0.5, 0.25, 1.0, 2.0]}},
        sampler={"name": "grid", "seed": 0},
        devices="cpu:1",
        budget={"trials": 4},
    )
    ended = study_folder.tune()
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    assert re.search(r"trial \d: completed, accuracy 0\.75, latency_ms 0\.5", ended.out)
    found = json.loads(study_folder.best("study.yaml", "--top", "9", "--format", "json").out)
    assert [each["values"] for each in found] == [
        {"accuracy": 1.0, "latency_ms": 1.0},
        {"accuracy": 0.75, "latency_ms": 0.5},
        {"accuracy": 0.4375, "latency_ms": 0.25},
    ]


def test_grid_tries_each_configuration_once_on_many_devices(study_folder: StudyFolder) -> None:
    # The slow one is still at work when nothing else is left to try.
    study_folder.write(
        "forecast.py",
        "import time\nfrom pathlib import Path\n"
        "def train(trial):\n"
        "    if trial.params['x'] == 0:\n"
        "        while len(list(Path('done').iterdir())) < 4:\n"
        "            time.sleep(0.02)\n"
        "    else:\n"
        "        Path('done', str(trial.number)).touch()\n"
        "    return trial.params['x']\n",
    )
    (study_folder.path / "done").mkdir()
    study_folder.study(
        search_space={"x": {"type": "categorical", "choices": [0, 1, 2, 3, 4]}},
        sampler={"name": "grid", "seed": 0},
        devices="cpu:3",
        budget=None,
    )
    ended = study_folder.tune()
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    values = study_folder.rows("select value from trial_values order by value")
    assert values == [(0,), (1,), (2,), (3,), (4,)]


# -- a terminal --------------------------------------------------------------------------------


def run_in_a_terminal(folder: StudyFolder, *words: str) -> tuple[int, str]:
    """Runs a command with a terminal of 100 columns; gives its exit code and what was drawn."""
    main, side = pty.openpty()
    env = folder.environment({"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"})
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder.path,
        env=env,
        stdin=side,
        stdout=side,
        stderr=side,
        start_new_session=True,
    )
    os.close(side)
    drawn = bytearray()
    give_up_at_s = time.monotonic() + TIMEOUT_S
    try:
        while select.select([main], [], [], max(0.0, give_up_at_s - time.monotonic()))[0]:
            try:
                drawn += os.read(main, 65536)
            except OSError:  # Linux: nobody has the other end open any more.
                break
        return process.wait(TIMEOUT_S), drawn.decode()
    finally:
        os.close(main)
        if process.poll() is None:
            process.kill()
            process.wait(TIMEOUT_S)


def test_live_view_in_a_terminal(study_folder: StudyFolder) -> None:
    study_folder.write(
        "forecast.py",
        "import time\n"
        "def train(trial):\n"
        "    time.sleep(1.0)\n"  # Longer than from one picture to the next.
        "    if trial.number == 2:\n"
        "        raise ValueError('a colour')\n"
        "    return trial.params['x']\n",
    )
    study_folder.study(devices="cpu:1")
    code, drawn = run_in_a_terminal(study_folder, "-m", "tuner.run", "study.yaml")
    assert code == EXIT_BUDGET_REACHED
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
    assert "─ study small ─" in plain
    assert "4 of 4 trials finished, 4 begun  3 completed  0 pruned  1 failed" in plain
    assert re.search(r"100%  \d+ s", plain)
    assert "best  value 0.302333  trial 3: x" in plain
    assert re.search(r"cpu:0 +0 ", plain)
    assert "ValueError: a colour" in plain
    assert "trial 1: started" not in plain
    assert plain.rstrip().endswith("again: python -m tuner.best study.yaml")


def test_dumb_terminal_gets_plain_lines(study_folder: StudyFolder) -> None:
    study_folder.study(
        trial={"command": ["sh", "-c", "echo '{{\"value\": {x}}}'"]}, budget={"trials": 1}
    )
    command = [sys.executable, "-m", "tuner.run", "study.yaml"]
    ended = subprocess.run(
        ["script", "-qec", shlex.join(command), "/dev/null"],
        cwd=study_folder.path,
        env=study_folder.environment({"TERM": "dumb"}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == EXIT_BUDGET_REACHED
    assert "trial 0: started on cpu:0" in ended.stdout
    assert "\x1b" not in ended.stdout
