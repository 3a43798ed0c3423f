"""What `tuner submit` refuses before it asks an engine for anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner.compose.allocations.submission import check_reach, plan_submission
from tuner.config import load_study_file
from tuner.errors import EXIT_BAD_INPUT, TunerError

STUDY = """
study: digits
storage: {storage}
trial: {{function: "program:train", stop_grace: {grace}}}
search_space: {{x: {{type: float, low: 0, high: 1}}}}
engine: {engine}
"""
SERVER = "postgresql://me@db.example/tuner"
SLURM = "{name: slurm, nodes: 2, time: 1h}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a program, and without any engine's programs on the PATH."""
    (tmp_path / "program.py").write_text("def train(trial):\n    return trial.params['x']\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def check(file: Path, on: str | None) -> None:
    plan = plan_submission(load_study_file(file, environ=os.environ), on)
    check_reach(plan, plan.settings.nodes.most)
    plan.engine.check(plan.order)


def refusal(
    folder: Path,
    *,
    storage: str = SERVER,
    engine: str = SLURM,
    grace: str = "10s",
    on: str | None = None,
) -> str:
    """The message; its exit code is that of bad input."""
    file = folder / "study.yaml"
    file.write_text(STUDY.format(storage=storage, engine=engine, grace=grace))
    with pytest.raises(TunerError) as raised:
        check(file, on)
    assert raised.value.exit_code == EXIT_BAD_INPUT
    return str(raised.value)


def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the folder of the test, which is below /tmp, be one that nodes see."""
    monkeypatch.setattr("tuner.compose.allocations.submission._OWN_FOLDERS", ())


def test_no_engine_is_named(folder: Path) -> None:
    assert "has no engine. Add one, such as engine: {name: slurm" in refusal(folder, engine="null")


def test_an_unknown_engine(folder: Path) -> None:
    said = "The engine is 'pbs', but must be slurm, kubernetes, ray or ssh."
    assert refusal(folder, on="pbs") == said


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]", "db.localhost", ""]
)
def test_a_database_that_nodes_cannot_reach(folder: Path, host: str) -> None:
    said = refusal(folder, storage=f"postgresql://me@{host}/tuner")
    assert "which is another machine on each node" in said


def test_a_file_as_database_of_several_nodes(folder: Path) -> None:
    assert "is an SQLite file, which one dispatcher at a time can use, but 2 nodes" in refusal(
        folder, storage="sqlite:///digits.db"
    )


def test_a_folder_of_this_machine_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.compose.allocations.submission._OWN_FOLDERS", (str(folder),))
    said = refusal(folder)
    assert (
        f"but each machine has its own {folder}. Move it to a folder that the nodes share" in said
    )


def test_no_sbatch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared(monkeypatch)
    said = refusal(folder)
    assert said.startswith("There is no sbatch on the PATH of this machine. Use tuner submit where")


def test_an_allocation_that_is_shorter_than_what_trials_need_to_save(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared(monkeypatch)
    (folder / "bin").mkdir()
    (folder / "bin" / "sbatch").touch(mode=0o755)
    said = refusal(folder, engine="{name: slurm, time: 2m}", grace="30s")
    assert said == (
        "engine.time is 120 s, but trials are told to save up to 140 s before the end. Give it at "
        "least 4m, or a shorter trial.stop_grace."
    )


def test_a_refusal_of_slurm_is_in_its_own_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared(monkeypatch)
    (folder / "bin").mkdir()
    for name, script in {
        "sbatch": "echo 'allocation failure: QOSMaxSubmitJobPerUserLimit' >&2; exit 1",
        "scontrol": "echo 'KillWait = 30 sec'",
    }.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / "bin" / name).chmod(0o755)
    assert refusal(folder).startswith(
        "Slurm refuses the allocation: allocation failure: QOSMaxSubmitJobPerUserLimit\nCompare "
    )


PARTITIONS = """
PartitionName=low Default=YES MaxNodes=UNLIMITED MaxTime=01:00:00 State=UP
PartitionName=long Default=NO MaxNodes=1 MaxTime=2-12:00:00 State=UP
PartitionName=free Default=NO MaxNodes=1 MaxTime=UNLIMITED State=UP
"""


def test_a_time_that_the_partition_does_not_allow(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared(monkeypatch)
    (folder / "bin").mkdir()
    (folder / "partitions").write_text(PARTITIONS)
    for name, script in {
        "sbatch": "echo 'asked' >&2; exit 1",
        "scontrol": f'while read -r line; do echo "$line"; done < {folder}/partitions',
    }.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / "bin" / name).chmod(0o755)

    def refused(time: str, partition: str) -> str:
        return refusal(folder, engine=f"{{name: slurm, time: {time}, slurm: {{{partition}}}}}")

    assert refused("90m", "") == (
        "engine.time is 90m, but the partition allows less (low 60m). Give it less time, or name "
        "another partition: slurm: {partition: NAME}"
    )
    assert "(low 60m, long 3600m)" in refused("61h", "partition: 'long,low'")
    for time, partition in (("60m", ""), ("60h", "partition: long"), ("61h", "partition: free")):
        assert refused(time, partition).startswith("Slurm refuses the allocation: asked")


def test_a_grace_that_slurm_does_not_give(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared(monkeypatch)
    (folder / "bin").mkdir()
    (folder / "bin" / "sbatch").touch(mode=0o755)
    script = "#!/bin/sh\necho 'KillWait = 30 sec'; echo 'PreemptMode = REQUEUE'\n"
    (folder / "bin" / "scontrol").write_text(script)
    (folder / "bin" / "scontrol").chmod(0o755)
    assert "this Slurm kills a preempted job 30 s after SIGTERM (KillWait)" in refusal(
        folder, grace="60s"
    )


def test_hosts_are_needed(folder: Path) -> None:
    assert "engine.ssh.hosts is missing" in refusal(folder, engine="{name: ssh}")
