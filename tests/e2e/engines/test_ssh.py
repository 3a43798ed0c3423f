"""Studies on two hosts over a real sshd: with a shared folder, with copies, with what is wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.engines.conftest import module_setup, setup_of, steps_of, write_forecast_study
from tests.e2e.study_folder import StudyFolder, wait_until
from tests.engines.ssh_server import HOSTS, SshServer, run_ssh_server, sshd_program
from tuner.errors import EXIT_BAD_INPUT

pytestmark = [pytest.mark.engines, pytest.mark.slow]

OVER = ("ended", "failed")


@pytest.fixture
def ssh_folder(engine_folder: StudyFolder, ssh_server: SshServer) -> Iterator[StudyFolder]:
    yield engine_folder
    engine_folder.tuner("cancel", "study.yaml")


def write_study(
    folder: StudyFolder, server: SshServer, *, setup: list[str] | None = None, **ssh: object
) -> None:
    engine = {
        "name": "ssh",
        "nodes": 2,
        "idle": "3s",
        # Of the variables of `tuner submit` ssh takes none along.
        "setup": setup or setup_of(folder),
        "ssh": {"hosts": list(HOSTS), "options": server.options, **ssh},
    }
    write_forecast_study(folder, engine)


def states_of(folder: StudyFolder) -> list[str]:
    """Of all allocations, by number."""
    done = folder.tuner("devices", "--allocations", "study.yaml")
    assert done.code == 0, done.text
    words = ("pending", "running", "ending", *OVER)
    lines = done.out.splitlines()[1:]
    return [next(word for word in words if f" {word}" in line) for line in lines]


def test_a_study_runs_on_two_hosts_that_share_its_folder(
    ssh_folder: StudyFolder, ssh_server: SshServer, steps_log: Path
) -> None:
    write_study(ssh_folder, ssh_server)
    done = ssh_folder.tuner("submit", "study.yaml")
    assert done.code == 0, done.text
    wait_until(lambda: steps_of(steps_log).count((3, 3)) == 1, "four trials wait at step 3")
    assert states_of(ssh_folder) == ["running", "running"]
    again = ssh_folder.tuner("submit", "study.yaml")
    assert "has 2 allocations now: 2 running" in again.out
    # One is given back: its trials save, and the other host continues them.
    assert ssh_folder.tuner("scale", "study.yaml", "1").code == 0
    steps_log.with_name("go").touch()
    wait_until(lambda: all(state in OVER for state in states_of(ssh_folder)), "all is over")
    assert states_of(ssh_folder) == ["ended", "ended"]
    assert sorted(steps_of(steps_log)) == [(trial, step) for trial in range(4) for step in range(6)]
    name = f"{HOSTS[0]}/small/0"
    assert "budget reached" in ssh_folder.tuner("logs", "--allocation", name).out


def test_code_is_copied_to_a_host_without_the_folder(
    ssh_folder: StudyFolder, ssh_server: SshServer, steps_log: Path
) -> None:
    write_study(ssh_folder, ssh_server, copy_to="~/tuner")
    steps_log.with_name("go").touch()
    done = ssh_folder.tuner("submit", "study.yaml", "--nodes", "1")
    assert done.code == 0, done.text
    wait_until(lambda: states_of(ssh_folder) == ["ended"], "all is over")
    assert len(steps_of(steps_log)) == 24
    copy = ssh_server.home / "tuner" / "small"
    assert [path.name for path in copy.glob("code/*/forecast.py")] == ["forecast.py"]
    assert (copy / "tuner-files" / "small").is_dir()


def test_setup_loads_environment_modules(
    ssh_folder: StudyFolder, ssh_server: SshServer, steps_log: Path
) -> None:
    steps_log.with_name("go").touch()
    write_study(ssh_folder, ssh_server, setup=module_setup(ssh_folder))
    done = ssh_folder.tuner("submit", "study.yaml", "--nodes", "1")
    assert done.code == 0, done.text
    wait_until(lambda: states_of(ssh_folder) == ["ended"], "all is over")
    assert len(steps_of(steps_log)) == 24


def test_what_a_host_lacks_is_told_before_anything_starts(
    ssh_folder: StudyFolder, ssh_server: SshServer
) -> None:
    write_study(ssh_folder, ssh_server, python="/no/such/python")
    done = ssh_folder.tuner("submit", "study.yaml")
    assert done.code == EXIT_BAD_INPUT
    assert f"{HOSTS[0]}: The tuner cannot run there: " in done.err
    assert "/no/such/python" in done.err
    write_study(ssh_folder, ssh_server, hosts=[HOSTS[0]])
    done = ssh_folder.tuner("submit", "study.yaml")
    assert done.code == EXIT_BAD_INPUT
    assert "2 nodes are asked for, but 1 of the hosts in engine.ssh.hosts" in done.err
    write_study(ssh_folder, ssh_server)
    assert states_of(ssh_folder) == []


def test_a_host_that_does_not_see_the_folder_is_named(
    ssh_folder: StudyFolder, ssh_server: SshServer
) -> None:
    if os.geteuid() != 0:
        pytest.skip("a host with other mounts needs root")
    program = sshd_program()
    assert program is not None
    # A host where an empty folder is in its place.
    mounts = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']
    with run_ssh_server(program, [*mounts, str(ssh_folder.path)]) as other:
        write_study(ssh_folder, other)
        done = ssh_folder.tuner("submit", "study.yaml")
        assert done.code == EXIT_BAD_INPUT
        assert f"{HOSTS[0]} does not see {ssh_folder.path}/tuner-files/small" in done.err
        assert "is not shared. Move the study to a shared folder, or let the tuner copy" in done.err
        assert "no study in it yet" in ssh_folder.tuner("status", "study.yaml").err
    write_study(ssh_folder, ssh_server)
