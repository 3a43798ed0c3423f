"""What this machine cannot do is said before anything starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tuner.config.machine_checks import check_command_exists, check_resources, resolve_argv
from tuner.devices.device import Device, DeviceId, DeviceKind
from tuner.errors import ConfigError


def gpus(n: int) -> list[Device]:
    return [
        Device(id=DeviceId(f"GPU-{i}"), kind=DeviceKind.GPU, name="H200", index=i) for i in range(n)
    ]


CPU = Device(id=DeviceId("cpu:0"), kind=DeviceKind.CPU, name="CPU", index=0)


def trial(body: str) -> str:
    return f"study: digits\ntrial: {{{body}}}\n"


@pytest.mark.parametrize(
    ("resources", "devices", "expected"),
    [
        pytest.param(
            "{gpus: 4}",
            gpus(2),
            "trial.resources.gpus is 4, but this machine has 2 GPUs (0, 1). Use 1 or 2.",
            id="too-many",
        ),
        pytest.param(
            "{gpus: 4}",
            gpus(1),
            "trial.resources.gpus is 4, but this machine has 1 GPU (0). Use 1.",
            id="only-one",
        ),
        pytest.param(
            "{gpus: 4}",
            gpus(3),
            "trial.resources.gpus is 4, but this machine has 3 GPUs (0, 1, 2). Use 1, 2 or 3.",
            id="three",
        ),
        pytest.param(
            "{gpus: 1}",
            [CPU],
            "trial.resources.gpus is 1, but this machine has no GPU. "
            "Use resources: {cpus: 1}, or remove trial.resources.",
            id="no-gpu",
        ),
        pytest.param(
            "{gpus: 4}",
            gpus(8),
            "trial.resources.gpus is 4, but this version runs one device per trial. Use 1.",
            id="several-per-trial",
        ),
        pytest.param(
            "{gpus: 0.25}",
            gpus(8),
            "trial.resources.gpus is 0.25, but this version runs one device per trial. Use 1.",
            id="share",
        ),
        pytest.param(
            "{cpus: 2}",
            [CPU],
            "trial.resources.cpus is 2, but this version runs one device per trial. Use 1.",
            id="cpus",
        ),
    ],
)
def test_resources_that_cannot_be_given_are_refused(
    load, resources: str, devices: list[Device], expected: str
) -> None:
    config = load(trial(f"function: m:f, resources: {resources}"))
    with pytest.raises(ConfigError) as caught:
        check_resources(config, devices)
    assert str(caught.value) == f"study.yaml: {expected}"


@pytest.mark.parametrize(
    ("body", "devices"),
    [
        pytest.param("function: m:f", [CPU], id="absent"),
        pytest.param("function: m:f, resources: {gpus: 1}", gpus(2), id="one-gpu"),
        pytest.param("function: m:f, resources: {cpus: 1}", [CPU], id="one-cpu"),
    ],
)
def test_resources_of_one_device_are_accepted(load, body: str, devices: list[Device]) -> None:
    check_resources(load(trial(body)), devices)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param(
            "pyhton",
            "is 'pyhton', but there is no such program on PATH. Did you mean 'python'?",
            id="python",
        ),
        pytest.param(
            "no-such-program",
            "is 'no-such-program', but there is no such program on PATH. "
            "Install it, or give its path.",
            id="unknown",
        ),
        pytest.param(
            "./train.sh",
            "is './train.sh', but there is no program {folder}/train.sh. Correct the path.",
            id="path",
        ),
        pytest.param(
            "./data.txt",
            "is './data.txt', which is not executable. Run: chmod +x {folder}/data.txt",
            id="not-executable",
        ),
    ],
)
def test_program_that_is_not_there_is_named(
    load, folder: Path, program: str, expected: str
) -> None:
    (folder / "data.txt").write_text("")
    config = load(trial(f"command: [{program}]"))
    with pytest.raises(ConfigError) as caught:
        check_command_exists(config)
    where = expected.replace("{folder}", str(folder))
    assert str(caught.value) == f"study.yaml: trial.command[0] {where}"


@pytest.mark.parametrize("program", ["python", "sh", "./train.sh"])
def test_program_that_is_there_is_accepted(load, folder: Path, program: str) -> None:
    (folder / "train.sh").write_text("#!/bin/sh\n")
    (folder / "train.sh").chmod(0o755)
    check_command_exists(load(trial(f"command: [{program}]")))


def test_python_is_the_interpreter_of_the_tuner() -> None:
    assert resolve_argv(["python", "t.py"], Path("/x")) == [sys.executable, "t.py"]


def test_program_with_a_slash_begins_in_the_folder_of_the_study() -> None:
    assert resolve_argv(["./t.sh", "a/b"], Path("/x")) == ["/x/t.sh", "a/b"]
    assert resolve_argv(["/bin/sh"], Path("/x")) == ["/bin/sh"]
    assert resolve_argv(["sh"], Path("/x")) == ["sh"]
