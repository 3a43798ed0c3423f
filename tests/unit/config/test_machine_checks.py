"""What this machine cannot do is said before anything starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tuner.config.machine_checks import (
    check_command_exists,
    check_resources,
    interpreter_line,
    resolve_argv,
    what_is_left_to_others,
)
from tuner.devices.device import Device, DeviceId, DeviceKind
from tuner.errors import ConfigError


def gpus(n: int) -> list[Device]:
    return [
        Device(
            id=DeviceId(f"GPU-{i}"),
            kind=DeviceKind.GPU,
            name="H200",
            index=i,
            memory_bytes=80 * 1024**3,
        )
        for i in range(n)
    ]


CPU = Device(id=DeviceId("cpu:0"), kind=DeviceKind.CPU, name="CPU", index=0)


WORLD_SIZE = "search_space: {world_size: {type: categorical, choices: [1, 2, 4]}}\n"


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
            "{cpus: 3}",
            [CPU],
            "trial.resources.cpus is 3, but this study has 1 CPU slot. "
            "Use 1, or more slots: devices: cpu:3.",
            id="cpus",
        ),
        pytest.param(
            "{gpus: auto}",
            [CPU],
            "trial.resources.gpus is auto, but this machine has no GPU. "
            "Use resources: {cpus: 1}, or remove trial.resources.",
            id="auto-without-gpu",
        ),
        pytest.param(
            "{memory: 200GiB}",
            gpus(2),
            "trial.resources.memory is 200.0 GiB, but no GPU here has that much: the largest has "
            "80.0 GiB. Use less.",
            id="memory-above-the-device",
        ),
        pytest.param(
            '{gpus: "{world_size}"}',
            gpus(2),
            "trial.resources.gpus is '{world_size}', which can be 4, but this machine has 2 GPUs "
            "(0, 1). Use 1 or 2.",
            id="by-parameter",
        ),
    ],
)
def test_resources_that_cannot_be_given_are_refused(
    load, resources: str, devices: list[Device], expected: str
) -> None:
    config = load(trial(f"function: m:f, resources: {resources}") + WORLD_SIZE)
    with pytest.raises(ConfigError) as caught:
        check_resources(config, devices)
    assert str(caught.value) == f"study.yaml: {expected}"


@pytest.mark.parametrize(
    ("body", "devices"),
    [
        pytest.param("function: m:f, resources: {gpus: 4}", gpus(4), id="several"),
        pytest.param("function: m:f, resources: {gpus: 0.25}", gpus(1), id="share"),
        pytest.param("function: m:f, resources: {gpus: auto}", gpus(1), id="auto"),
        pytest.param("function: m:f, resources: {memory: 8GiB}", gpus(1), id="memory"),
        pytest.param("function: m:f, resources: {cpus: 0.5}", [CPU], id="share-of-a-slot"),
        pytest.param("function: m:f", [CPU], id="absent"),
        pytest.param("function: m:f, resources: {gpus: 1}", gpus(2), id="one-gpu"),
        pytest.param("function: m:f, resources: {cpus: 1}", [CPU], id="one-cpu"),
    ],
)
def test_resources_that_fit_are_accepted(load, body: str, devices: list[Device]) -> None:
    check_resources(load(trial(body)), devices)


def test_a_machine_that_is_too_narrow_for_some_trials_may_join_a_shared_study(load) -> None:
    body = trial('function: m:f, resources: {gpus: "{world_size}"}') + WORLD_SIZE
    config = load(body + "storage: postgresql://server/db\n")
    check_resources(config, gpus(2))
    assert what_is_left_to_others(config, gpus(2)) == (
        "trials that need 4 devices are left to other dispatchers of the study: this one has 2"
    )
    check_resources(config, gpus(4))
    assert what_is_left_to_others(config, gpus(4)) == ""


def test_a_shared_study_that_nothing_fits_of_is_refused(load) -> None:
    shared = "storage: postgresql://server/db\n"
    for resources, device in (("{gpus: 4}", gpus(2)), ("{memory: 200GiB}", gpus(2))):
        config = load(trial(f"function: m:f, resources: {resources}") + shared)
        with pytest.raises(ConfigError):
            check_resources(config, device)


def test_max_gpus_limits_the_width_of_a_trial(load) -> None:
    config = load(trial("function: m:f, resources: {gpus: 4}") + "max_gpus: 2\n")
    with pytest.raises(ConfigError) as caught:
        check_resources(config, gpus(8))
    assert str(caught.value) == (
        "study.yaml: trial.resources.gpus is 4, but max_gpus is 2. Use 1 or 2."
    )


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


@pytest.fixture
def own_bin(tmp_path: Path) -> Path:
    """The folder of programs of another environment than the tuner's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python").write_text("#!/bin/sh\necho Python 3.99.1\n")
    (folder / "python").chmod(0o755)
    return folder


def test_path_decides_what_python_is(load, own_bin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{own_bin}:/usr/bin:/bin")
    config = load(trial("command: [python, t.py]"))
    check_command_exists(config)
    assert resolve_argv(["python", "t.py"], Path("/x")) == ["python", "t.py"]
    assert interpreter_line(config) == (
        f"command: python is {own_bin}/python (Python 3.99.1), from PATH; the tuner runs with "
        f"{sys.executable}"
    )


def test_path_of_the_command_decides(load, own_bin: Path) -> None:
    config = load(trial(f"command: [python, t.py], env: {{PATH: '{own_bin}'}}"))
    assert interpreter_line(config).startswith(f"command: python is {own_bin}/python (")


def test_python_of_the_tuners_own_environment(load, monkeypatch: pytest.MonkeyPatch) -> None:
    own = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", own)
    line = interpreter_line(load(trial("command: [python, t.py]")))
    version = ".".join(map(str, sys.version_info[:3]))
    assert line == f"command: python is {own}/python (Python {version})"


def test_without_any_python_on_path_it_is_the_interpreter_of_the_tuner(
    load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert resolve_argv(["python", "t.py"], Path("/x")) == [sys.executable, "t.py"]
    check_command_exists(load(trial("command: [python3, t.py]")))


def test_other_programs_have_no_interpreter_to_name(load) -> None:
    assert interpreter_line(load(trial("command: [sh, t.sh]"))) == ""
    assert interpreter_line(load(trial("function: m:f"))) == ""


def test_program_with_a_slash_begins_in_the_folder_of_the_study() -> None:
    assert resolve_argv(["./t.sh", "a/b"], Path("/x")) == ["/x/t.sh", "a/b"]
    assert resolve_argv(["/bin/sh"], Path("/x")) == ["/bin/sh"]
    assert resolve_argv(["sh"], Path("/x")) == ["sh"]
