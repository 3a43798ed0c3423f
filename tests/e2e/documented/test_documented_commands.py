"""Commands and parts of programs on the pages run as they stand, beside a small study."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.e2e.study_folder import Ended, StudyFolder
from tests.unit.test_docs import DOCS, GUIDES, blocks, study_file_with_all_keys

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]
#: Beginnings of lines that are not run here.
NOT_RUN = {
    "pip ": "installs",
    "git ": "installs",
    "make ": "sets up an environment",
    "tuner init": "would replace the study file; tests/e2e/commands/test_main_command.py",
    "tuner dashboard": "runs until Ctrl-C; tests/e2e/dashboard/test_dashboard.py",
    **dict.fromkeys(
        ("tuner submit", "tuner scale", "tuner cancel", "tuner logs --allocation"),
        "needs an engine; tests/e2e/engines/test_clusters_page.py",
    ),
    "kubectl ": "needs a cluster with KubeRay; tests/unit/engines/test_kuberay.py",
    "tuner db serve": "runs until Ctrl-C; tests/e2e/dispatchers/test_database_server.py",
    "tuner queue": "would start studies behind this test; tests/e2e/commands/test_queue.py",
    "tuner shares check": "needs rules of this machine; tests/unit/shares/test_rules.py",
    "tuner db restore": "needs an empty PostgreSQL; tests/e2e/dispatchers/test_database_server.py",
}
START = "python -m tuner.run study.yaml"
#: For what tunes: small, and the same on every machine.
SMALL = ("--set", "budget.trials=4", "--set", "devices=cpu:2")
PROGRAM = """
import sys

# A function and a script, for every form of `trial` on the pages.
def main(trial):
    for step in range(1, 4):
        trial.report(trial.params.lr, step=step)

if __name__ == "__main__":
    assert any(word.startswith("--lr=0.") for word in sys.argv), sys.argv
    for step in range(1, 4):
        print(f"epoch {step}: loss 0.25")
        print(f"epoch {step}: accuracy 0.75")
        print('{"step": %d, "value": 0.5}' % step, flush=True)
"""
#: As accelerate's examples: it saves folders, and takes the one to resume from as an option.
RESUMABLE_SCRIPT = """
import argparse, os, signal, sys
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--output_dir", type=Path)
parser.add_argument("--resume_from_checkpoint", type=Path)
args = parser.parse_args()
first = 0
if args.resume_from_checkpoint:
    print("resumed", args.resume_from_checkpoint)
    first = int(args.resume_from_checkpoint.name.removeprefix("epoch_")) + 1
for epoch in range(first, 5):
    print('{"step": %d, "value": %f}' % (epoch, args.lr), flush=True)
    (args.output_dir / f"epoch_{epoch}").mkdir()
    if epoch == 2:
        os.kill(os.getpid(), signal.SIGKILL)
"""
POPULATION = """
import optuna

def main(trial):
    state = trial.load_checkpoint() or {"value": 1.0, "step": 0}
    for step in range(state["step"] + 1, 101):
        state = {"value": state["value"] * (1 - trial.params.lr), "step": step}
        trial.save_checkpoint(state, step)
        trial.report(state["value"], step)
        if trial.should_prune():
            raise optuna.TrialPruned
"""
#: These are run below, with a program that fits.
PROGRAMS_OF_THEIR_OWN = ("population-based-training.md", "coming-from-optuna.md")
OPTUNA_PROGRAM = """
import optuna

def objective(trial):
    return trial.suggest_float("x", -1, 1) ** 2

study = optuna.create_study()
study.optimize(objective, n_trials=4)
print("best", study.best_value)
"""
#: What the parts of programs on the pages leave to the reader.
AROUND_THE_FUNCTION = """
import torch
best_accuracy = 0.75
def build(width): return torch.nn.Linear(width, 1)
def accuracy_after(epoch): return 0.25 * epoch
"""
AROUND_THE_CHECKPOINT = """
import torch, tuner
epoch, trial, model = 3, tuner.current(), torch.nn.Linear(2, 1)
{block}
assert state is None
assert trial.load_checkpoint()["epoch"] == 3
"""


def command_blocks() -> list[object]:
    """The lines of each block that are run, together: a line may need what the one before wrote."""
    found = (
        (page, number, [line.partition("  #")[0].strip() for line in block.splitlines()])
        for page in GUIDES
        if page.name not in PROGRAMS_OF_THEIR_OWN
        for number, block in enumerate(blocks(page, "sh"))
    )
    runnable = (
        (page, number, [line for line in lines if not line.startswith(tuple(NOT_RUN))])
        for page, number, lines in found
    )
    return [
        pytest.param(lines, id=f"{page.stem}-{number}")
        for page, number, lines in runnable
        # Many pages show how a study is started, in a block of its own.
        if lines and (lines != [START] or page.name == "index.md")
    ]


def parts_with_a_trial() -> list[object]:
    return [
        pytest.param(block, id=f"{page.stem}-{number}")
        for page in GUIDES
        for number, block in enumerate(blocks(page, "yaml"))
        if "trial" in (content := yaml.safe_load(block)) and "study" not in content
    ]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StudyFolder]:
    """The study of the quickstart after four trials, and the other files that lines name."""
    folder = StudyFolder(path=tmp_path_factory.mktemp("user"))
    for text, name in re.findall(
        r"```\w+\n(# (\w+\.\w+)\n.*?)```", (DOCS / "quickstart.md").read_text(), re.DOTALL
    ):
        folder.write(name, text)
    study = (folder.path / "study.yaml").read_text()
    folder.write("other.yaml", study.replace("study: first", "study: other"))
    folder.write("study2.yaml", study.replace("high: 128", "high: 256"))
    write_curves(folder.path / "curves.npz")
    ended = folder.tune(*SMALL)
    assert ended.code == 0, ended.text
    yield folder
    folder.end_all()


def write_curves(path: Path) -> None:
    random = np.random.default_rng(1)
    x = np.stack([10.0 ** random.uniform(-4, -1, 20), random.integers(8, 129, 20)], axis=1)
    value = np.exp(-x[:, :1] * np.arange(1, 28))
    np.savez(path, names=["lr", "width"], x=x, value=value, seconds=np.ones_like(value))


def in_a_shell(folder: StudyFolder, line: str) -> Ended:
    """Runs a line as a user does, where the package need not be installed."""
    programs = folder.path.with_name("programs")
    programs.mkdir(exist_ok=True)
    start = "import sys; sys.argv[0] = 'tuner'; from tuner.cli.main import main; main()"
    (programs / "tuner").write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "{start}" "$@"\n'
    )
    (programs / "tuner").chmod(0o700)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    return folder.run("sh", "-c", line, env={"PATH": path})


def test_commands_for_a_program_of_optuna_run(study_folder: StudyFolder) -> None:
    study_folder.write("train.py", OPTUNA_PROGRAM)
    (first, *_) = blocks(DOCS / "coming-from-optuna.md", "sh")
    lines = [line.partition("  #")[0].strip() for line in first.splitlines()]
    assert len(lines) == 2
    for line in lines:
        ended = in_a_shell(study_folder, line)
        assert ended.code == 0, ended.text
        assert "\nbest " in ended.out, "the part after study.optimize has run"


@pytest.mark.parametrize("lines", command_blocks())
def test_commands_of_a_page_run(lines: list[str], finished: StudyFolder) -> None:
    for line in lines:
        if line.startswith("python -m tuner.run"):
            # A port of the page's own may be taken.
            line = shlex.join([*shlex.split(line.replace("9400", "0")), *SMALL])
        ended = in_a_shell(finished, line)
        assert ended.code == 0, ended.text


@pytest.mark.parametrize("block", parts_with_a_trial())
def test_part_of_a_study_file_runs(block: str, study_folder: StudyFolder) -> None:
    part = yaml.safe_load(block)
    pattern = part["trial"].get("metrics", {}).get("pattern", "")
    (objective,) = re.findall(r"\b(loss|accuracy)\b", pattern)[:1] or ["value"]
    width = part["trial"].get("resources", {}).get("gpus")
    if isinstance(width, int):
        # As many CPU slots; a machine with GPUs of this number is not needed.
        part["trial"]["resources"] = {"cpus": 2}
    elif width is not None:
        del part["trial"]["resources"]
    space = {"lr": {"type": "float", "low": 0.1, "high": 0.9}}
    study_folder.write("train.py", PROGRAM)
    study_folder.study(**{"search_space": space, "objectives": {objective: "minimize"}, **part})
    ended = study_folder.tune("--trials", "2")
    assert ended.code == 0, ended.text
    assert study_folder.states() == ["COMPLETE", "COMPLETE"]


def test_study_file_with_every_key_runs(study_folder: StudyFolder) -> None:
    study_folder.write("study.yaml", study_file_with_all_keys())
    small = ("--set", "devices=cpu:2", "--set", "max_gpus=null", "--set", "search_space.epochs=3")
    earlier = ("--study", "digits-small", "--set", "transfer=null", "--set", "confirm=null")
    ended = study_folder.tune("--trials", "1", *small, *earlier)
    assert ended.code == 0, ended.text
    few = ("--set", "confirm={top: 1, seeds: 2}")
    ended = study_folder.tune("--trials", "2", *small, *few)
    assert ended.code == 0, ended.text
    assert (study_folder.path / "best.jsonl").read_text().startswith("{")


def test_function_of_your_program_runs(study_folder: StudyFolder) -> None:
    function, _ = blocks(DOCS / "your-program.md", "python")
    study_folder.write("program.py", AROUND_THE_FUNCTION + function)
    study_folder.study(trial={"function": "program:train"}, search_space={"width": 8, "epochs": 3})
    ended = study_folder.tune("--trials", "1")
    assert ended.code == 0, ended.text
    assert study_folder.states() == ["COMPLETE"]


def test_script_of_your_program_runs_alone(study_folder: StudyFolder) -> None:
    _, script = blocks(DOCS / "your-program.md", "python")
    study_folder.write("script.py", script)
    ended = study_folder.python("script.py")
    assert ended.out == "0.003\n", ended.text


def test_checkpoint_in_two_lines(study_folder: StudyFolder) -> None:
    block = next(b for b in blocks(DOCS / "checkpoints.md", "python") if "train.py" not in b)
    study_folder.write("script.py", AROUND_THE_CHECKPOINT.replace("{block}", block))
    ended = study_folder.python("script.py")
    assert ended.code == 0, ended.text


def test_command_with_checkpoints_of_its_own_resumes(study_folder: StudyFolder) -> None:
    page = DOCS / "checkpoints.md"
    script = next(b for b in blocks(page, "python") if b.startswith("# resume.py"))
    (command,) = re.findall(r"`(\[python, resume.py.*\])`", page.read_text())
    study_folder.write("resume.py", script)
    study_folder.write("train.py", RESUMABLE_SCRIPT)
    study_folder.study(
        trial={"command": yaml.safe_load(command), "retries": 1},
        search_space={"lr": {"type": "float", "low": 0.001, "high": 0.1}},
        devices="cpu:1",
        pruner="none",
        budget={"trials": 1},
    )
    ended = study_folder.tune()
    assert ended.code == 0, ended.text
    (folder,) = study_folder.path.glob("tuner-files/*/trial-0")
    assert "resumed" not in (folder / "attempt-1.log").read_text()
    second = (folder / "attempt-2.log").read_text()
    assert f"resumed {folder}/checkpoints/epoch_2" in second
    steps = study_folder.rows("select step from trial_intermediate_values order by step")
    assert steps == [(0,), (1,), (2,), (3,), (4,)]


def test_population_and_its_schedule(study_folder: StudyFolder) -> None:
    page = DOCS / "population-based-training.md"
    (pruner,) = blocks(page, "yaml")
    space = {
        "lr": {"type": "float", "low": 0.001, "high": 0.1, "log": True},
        "width": {"type": "int", "low": 8, "high": 16},
    }
    study_folder.write("train.py", POPULATION)
    study_folder.study(
        trial={"function": "train:main"},
        search_space=space,
        devices="cpu:4",
        budget=None,
        sampler=None,
        **yaml.safe_load(pruner),
    )
    ended = study_folder.tune("--set", "pruner.max_resource=20")
    assert ended.code == 0, ended.text
    (commands,) = blocks(page, "sh")
    for line in commands.splitlines():
        shown = in_a_shell(study_folder, line)
        assert shown.code == 0, shown.text
    (script,) = blocks(page, "python")
    study_folder.write("schedule.py", f"{script}print(lr)\n")
    read = study_folder.python("schedule.py")
    assert 0.001 <= float(read.out) <= 0.1, read.text
